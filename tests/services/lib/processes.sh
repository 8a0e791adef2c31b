# shellcheck shell=bash
# Starting, finding and ending processes. Part of `../ctl`.
#
# A process is ours only if it is the very one that was recorded: a pid alone may have been given to somebody else since.
# Boot, pid and start time together name a process for good.

boot=$(</proc/sys/kernel/random/boot_id)

process_fields() { # pid -> "state ppid pgrp session .. starttime .." (proc(5), from the third field on)
  local line
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  printf '%s\n' "${line##*) }"
}

started_at() {
  local -a field
  read -ra field < <(process_fields "$1") || return 1
  echo "${field[19]}"
}

zombie() { # it has ended, and nobody has asked how; where there is no proper init it stays like that
  [[ $(process_fields "$1") == [ZX]* ]]
}

record_process() { echo "$boot $2 $(started_at "$2" || echo gone)" >"$state/$1/process"; }

recorded_pid() {
  local _boot pid _start
  read -r _boot pid _start 2>/dev/null <"$state/$1/process" && echo "$pid"
}

# The pid of a server of ours that is alive; nothing and 1 otherwise.
live_pid() {
  local was_boot pid start
  read -r was_boot pid start 2>/dev/null <"$state/$1/process" || return 1
  [[ $was_boot == "$boot" && $(started_at "$pid") == "$start" ]] && ! zombie "$pid" && echo "$pid"
}

# pid, parent, session and start time of everything that runs.
all_processes() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk '{ pid = $1; sub(/^.*\) /, ""); if ($1 !~ /[ZX]/) print pid, $2, $4, $20 }' || true
}

# A server's processes, the first one first: PostgreSQL's backends and Chromium's processes are children of the recorded one.
family() {
  local pid
  pid=$(live_pid "$1") || return 0
  all_processes | awk -v root="$pid" '
    { parent[$1] = $2 }
    function ours(p) { while (p in parent) { if (p == root) return 1; p = parent[p] } return 0 }
    END { print root; for (p in parent) if (p != root && ours(p)) print p }'
}

# What a dead server left behind. Browsers outlive a chromedriver that was killed: `launch` made the server the leader of a
# session, whose number is not given away while a member lives, and a member is younger than its leader. PostgreSQL's
# backends have sessions of their own, and stay in the data folder; a new server does not start while one of them lives.
orphans() {
  local was_boot pid start
  read -r was_boot pid start 2>/dev/null <"$state/$1/process" || return 0
  [[ $was_boot == "$boot" && $start != gone ]] || return 0
  if [[ ! -e /proc/$pid || $(started_at "$pid") == "$start" ]]; then
    all_processes | awk -v session="$pid" -v start="$start" '$3 == session && $1 != session && $4 >= start { print $1 }'
  fi
  if [[ $1 == postgres && -e $state/postgres/data ]]; then
    # find complains about processes that end while it looks
    find /proc -maxdepth 2 -path '/proc/[0-9]*/cwd' -lname "$(readlink -f "$state/postgres/data")" 2>/dev/null | cut -d / -f 3 || true
  fi
}

signal() { # signal, pids..
  local name=$1
  shift
  (( $# == 0 )) || kill -s "$name" "$@" 2>/dev/null || true
}

# Starts a command as a session of its own, detached from our terminal and pipes, and records it.
launch() { # server, command..
  local server=$1 pid
  shift
  # Without 9>&- the server would inherit, and hold, the lock on the state folder.
  (cd / && exec setsid "$@") </dev/null >>"$state/$server/log" 2>&1 9>&- &
  pid=$!
  disown "$pid"
  record_process "$server" "$pid"
}

stop_server() { # server, signal
  local server=$1 signal=$2 pid tenths
  local -a pids
  if pid=$(live_pid "$server"); then
    mapfile -t pids < <(family "$server")
    signal CONT "${pids[@]}" # a paused process does not hear a polite signal
    signal "$signal" "$pid"
    for (( tenths = 0; tenths < 300; tenths++ )); do
      live_pid "$server" >/dev/null || break
      sleep 0.1
    done
    if live_pid "$server" >/dev/null; then
      say "$server does not end by itself; killing it"
      signal KILL "$pid"
      while live_pid "$server" >/dev/null; do sleep 0.1; done
    fi
  fi
  for (( tenths = 0; tenths < 100; tenths++ )); do
    mapfile -t pids < <(orphans "$server")
    (( ${#pids[@]} > 0 )) || break
    signal KILL "${pids[@]}"
    sleep 0.1
  done
  rm -f "$state/$server/process"
}

# The signal for an orderly end. PostgreSQL: INT is "fast", TERM would wait for its clients.
farewell() { [[ $1 == postgres ]] && echo INT || echo TERM; }
