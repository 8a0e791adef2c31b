# shellcheck shell=bash
# What the servers need from the system, and how it gets there. Part of `../ctl`.

java_version() { # the major version, or 0
  local line
  line=$(java -version 2>&1 | head -n 1) || true
  [[ $line =~ \"([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

postgres_bin() { # where initdb lies: Debian keeps it out of PATH, one folder for each major version
  local found
  found=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
  [[ -x $found ]] || found=$(command -v initdb) || return 1
  dirname "$found"
}

# The Debian packages that are missing, one a line.
missing_packages() {
  local command_and_package
  (( $(java_version) >= 17 )) || echo default-jre-headless
  postgres_bin >/dev/null || echo postgresql
  for command_and_package in mvn:maven psql:postgresql-client redis-server:redis-server redis-cli:redis-tools \
    chromium:chromium chromedriver:chromium-driver kcat:kcat openssl:openssl curl:curl; do
    command -v "${command_and_package%%:*}" >/dev/null || echo "${command_and_package##*:}"
  done
}

install_packages() {
  local -a packages
  mapfile -t packages < <(missing_packages)
  (( ${#packages[@]} > 0 )) || return 0
  if (( EUID != 0 )) || ! command -v apt-get >/dev/null; then
    die "missing; please install these packages (Debian's names): ${packages[*]}"
  fi
  say "installing ${packages[*]}"
  (
    # Debian starts a service as soon as its package is installed, unless policy-rc.d says no. The tests have servers of
    # their own, so it says no while we install; a policy that was there before comes back afterwards.
    policy=/usr/sbin/policy-rc.d
    before=$policy.before-lazaret
    # shellcheck disable=SC2317  # the trap calls it
    restore() { rm -f "$policy"; [[ ! -e $before ]] || mv "$before" "$policy"; }
    # Two checkouts that install at the same time would restore each other's policy.
    exec 8>/run/lock/lazaret-services-install && flock 8
    [[ ! -e $policy || -e $before ]] || mv "$policy" "$before"
    trap restore EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
    apt-get -qq update || say "apt-get update had complaints; trying with the lists there are"
    # --no-upgrade: a PostgreSQL or Redis that this machine already runs is none of our business.
    apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install --yes --no-install-recommends --no-upgrade "${packages[@]}"
  ) >&2 </dev/null || die "apt-get could not install: ${packages[*]}"
  mapfile -t packages < <(missing_packages)
  (( ${#packages[@]} == 0 )) || die "installed, and still missing: ${packages[*]}"
}
