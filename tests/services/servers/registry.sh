# shellcheck shell=bash
# A schema registry that speaks Confluent's API (Apicurio); part of `../ctl`.

# Maven is asked once; afterwards what it fetched holds until the pom changes.
registry_fetch() {
  local home_of=$home/registry/target said
  [[ ! $home_of/app -nt $home/registry/pom.xml || ! -s $(registry_jar) ]] || return 0
  say "fetching the schema registry with Maven"
  rm -rf "$home_of"
  mkdir -p "$home_of/fresh"
  said=$(mvn --batch-mode --quiet --file "$home/registry/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$home_of" </dev/null 2>&1) || {
    printf '%s\n' "$said" >&2
    die "Maven could not fetch the schema registry"
  }
  tar -xzf "$home_of"/apicurio-registry-app-*-all.tar.gz -C "$home_of/fresh"
  rm -f "$home_of"/*.tar.gz
  mv "$home_of/fresh" "$home_of/app"
  touch "$home_of/app"
}

registry_jar() { printf '%s\n' "$home"/registry/target/app/*-runner.jar; }

# Everything in memory.
registry_start() {
  registry_fetch
  take_ports registry 1
  launch registry java -Xmx384m -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true -Dquarkus.http.host=127.0.0.1 \
    "-Dquarkus.http.port=${ports[0]}" -jar "$(registry_jar)"
}

registry_ask() { curl --silent --fail --max-time 5 "http://127.0.0.1:${ports[0]}$1"; }

registry_answers() {
  local pid
  pid=$(live_pid registry) || return 1
  read_ports registry
  listens "$pid" "${ports[0]}" && registry_ask /apis/ccompat/v7/subjects >/dev/null
}

registry_env() { put LAZARET_TEST_REGISTRY "http://127.0.0.1:${ports[0]}/apis/ccompat/v7"; }

registry_version() {
  local version
  version=$(registry_ask /apis/registry/v2/system/info | sed -n 's/.*"version":"\([^"]*\)".*/\1/p')
  [[ -n $version ]] && echo "Apicurio Registry $version"
}
