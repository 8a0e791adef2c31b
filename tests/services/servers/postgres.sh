# shellcheck shell=bash
# PostgreSQL; part of `../ctl`.

postgres_url() { echo "postgres://lazaret:$admin_password@127.0.0.1:${ports[0]}/postgres"; }

# Root's PostgreSQL runs as `postgres`, because the server refuses root.
postgres_user=()
(( EUID != 0 )) || postgres_user=(setpriv --reuid postgres --regid postgres --init-groups --)
as_postgres() { (cd / && exec "${postgres_user[@]}" "$@"); }

postgres_start() {
  local bin data=$state/postgres/data
  bin=$(postgres_bin)
  take_ports postgres 1
  [[ -e $state/postgres/initialised ]] || postgres_initialise "$bin"
  # Whoever the lock file names is dead, or we would not be here; PostgreSQL takes even a zombie for alive.
  rm -f "$data/postmaster.pid"
  # Durability stays as PostgreSQL has it by default: the benchmarks compare against it.
  launch postgres "${postgres_user[@]}" "$bin/postgres" -D "$(readlink -f "$data")" -p "${ports[0]}" \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c shared_buffers=256MB -c max_connections=200
}

postgres_initialise() { # the folder of initdb
  local password_file data=$state/postgres/data
  postgres_remove
  mkdir -m 700 "$data"
  if (( EUID == 0 )); then
    chown postgres: "$data"
    if ! as_postgres test -w "$data"; then
      # The checkout lies below a folder that `postgres` may not enter: `data` leads to where it may.
      rmdir "$data"
      ln -s "$(as_postgres mktemp -d /var/tmp/lazaret-postgres.XXXXXX)" "$data"
    fi
  fi
  password_file=$(as_postgres mktemp /tmp/lazaret-postgres.XXXXXX)
  as_postgres tee "$password_file" <<<"$admin_password" >/dev/null
  as_postgres "$1/initdb" --pgdata "$(readlink -f "$data")" --username lazaret --auth scram-sha-256 --pwfile "$password_file" \
    --encoding UTF8 --locale C.UTF-8 --no-sync >>"$state/postgres/log" 2>&1 || {
    rm -f "$password_file"
    die "PostgreSQL's data folder could not be made: $(tail -n 1 "$state/postgres/log")"
  }
  rm -f "$password_file"
  touch "$state/postgres/initialised"
}

postgres_remove() {
  local data=$state/postgres/data
  rm -f "$state/postgres/initialised"
  [[ ! -L $data ]] || rm -rf "$(readlink "$data")"
  rm -rf "$data"
}

postgres_ask() { PGCONNECT_TIMEOUT=3 timeout 5 psql --no-psqlrc --no-password --tuples-only --no-align --command "$1" "$(postgres_url)" 2>/dev/null; }

postgres_answers() {
  local pid
  pid=$(live_pid postgres) || return 1
  read_ports postgres
  listens "$pid" "${ports[0]}" && [[ $(postgres_ask 'select 1') == 1 ]]
}

postgres_env() { put LAZARET_TEST_POSTGRES "$(postgres_url)"; }

postgres_version() { echo "PostgreSQL $(postgres_ask 'show server_version')"; }
