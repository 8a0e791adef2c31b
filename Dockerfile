# Builds and runs Lazaret. The build needs Rust, a C compiler, make and perl; everything else is compiled in.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make perl \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN cargo build --release --locked --bin lazaret

FROM debian:bookworm-slim
# Certificates of the public authorities, for brokers and databases over TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data --create-home lazaret
COPY --from=build /build/target/release/lazaret /usr/local/bin/lazaret
# SQLite's default, ./lazaret-data, lies in the volume.
USER 10001
WORKDIR /data
VOLUME /data
ENV LAZARET_SERVER__LISTEN=0.0.0.0:8080
EXPOSE 8080
# The program asks itself: the image needs no curl and the check no shell. It reads the same variables and ./lazaret.toml.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["lazaret", "healthcheck"]
ENTRYPOINT ["lazaret"]
CMD ["serve", "--config", "/etc/lazaret/lazaret.toml"]
