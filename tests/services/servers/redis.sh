# shellcheck shell=bash
# Redis; part of `../ctl`.

# Memory only: what a restart loses is part of what is tested.
redis_start() {
  take_ports redis 1
  mkdir -p "$state/redis/data"
  launch redis redis-server --bind 127.0.0.1 --port "${ports[0]}" --dir "$state/redis/data" --save '' --appendonly no --daemonize no
}

redis_answers() {
  local pid
  pid=$(live_pid redis) || return 1
  read_ports redis
  listens "$pid" "${ports[0]}" && [[ $(timeout 5 redis-cli -h 127.0.0.1 -p "${ports[0]}" ping 2>/dev/null) == PONG ]]
}

redis_env() { put LAZARET_TEST_REDIS "redis://127.0.0.1:${ports[0]}"; }

redis_version() {
  local version
  version=$(redis-cli -h 127.0.0.1 -p "${ports[0]}" info server | tr -d '\r' | sed -n 's/^redis_version://p')
  [[ -n $version ]] && echo "Redis $version"
}
