# shellcheck shell=bash
# Loopback ports. Part of `../ctl`.

# The sockets that listen on a port, as inode numbers.
listeners() {
  awk -v port="$(printf '%04X' "$1")" '$4 == "0A" && $2 ~ (":" port "$") { print $10 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null || true
}

# Does this process listen on this port? An answer alone could come from the server of another checkout that was quicker.
listens() { # pid, port
  local inode
  for inode in $(listeners "$2"); do
    [[ -z $(find "/proc/$1/fd" -lname "socket:\[$inode\]" -print -quit 2>/dev/null) ]] || return 0
  done
  return 1
}

# Sets the array `ports` to a server's recorded ports, or to fresh ones where there are none or another took them.
# They come from below the kernel's ephemeral range, so that no outgoing connection takes one while its server is down.
take_ports() { # server, how many
  local port
  local -a fresh=()
  read_ports "$1"
  while (( ${#ports[@]} < $2 )); do ports+=(0); done
  for port in "${ports[@]}"; do
    while (( port == 0 )) || [[ -n $(listeners "$port") ]] || [[ " ${fresh[*]} " == *" $port "* ]]; do
      port=$(( 15000 + RANDOM % 17000 ))
    done
    fresh+=("$port")
  done
  ports=("${fresh[@]}")
  echo "${ports[*]}" >"$state/$1/ports"
}

read_ports() {
  ports=()
  [[ ! -s $state/$1/ports ]] || read -ra ports <"$state/$1/ports"
}
