# shellcheck shell=bash
# Chromium; part of `../ctl`.

chromium_start() {
  take_ports chromium 1
  # Profiles of browsers that were not closed properly stay in TMPDIR: a folder of its own is removed with the rest. Not
  # below the state folder: Chromium puts a socket into it, and the path of a socket is 107 bytes at most.
  chromium_remove
  mktemp -d /tmp/lazaret-chromium.XXXXXX >"$state/chromium/tmp"
  launch chromium env TMPDIR="$(<"$state/chromium/tmp")" chromedriver --port="${ports[0]}" --log-level=WARNING
}

chromium_remove() {
  local dir
  if read -r dir 2>/dev/null <"$state/chromium/tmp" && [[ $dir == /tmp/lazaret-chromium.* ]]; then rm -rf "$dir"; fi
  rm -f "$state/chromium/tmp"
}

webdriver() { curl --silent --fail --max-time "$1" "${@:3}" "http://127.0.0.1:${ports[0]}$2"; }

chromium_answers() {
  local pid answer
  pid=$(live_pid chromium) || return 1
  read_ports chromium
  listens "$pid" "${ports[0]}" || return 1
  answer=$(webdriver 5 /status) && [[ $answer == *'"ready":true'* ]]
}

chromium_env() {
  put LAZARET_TEST_CHROMIUM "$(command -v chromium)"
  put LAZARET_TEST_WEBDRIVER "http://127.0.0.1:${ports[0]}"
}

# Chromedriver answers for itself; the browser's version takes a browser.
chromium_version() {
  local answer id version arguments='"--headless=new","--disable-gpu","--disable-dev-shm-usage"'
  (( EUID != 0 )) || arguments+=',"--no-sandbox"' # root's Chromium refuses to start with its sandbox
  answer=$(webdriver 60 /session --header 'content-type: application/json' --data \
    "{\"capabilities\":{\"alwaysMatch\":{\"browserName\":\"chrome\",\"goog:chromeOptions\":{\"binary\":\"$(command -v chromium)\",\"args\":[$arguments]}}}}") || return 1
  id=$(sed -n 's/.*"sessionId":"\([^"]*\)".*/\1/p' <<<"$answer")
  version=$(sed -n 's/.*"browserVersion":"\([^"]*\)".*/\1/p' <<<"$answer")
  webdriver 20 "/session/$id" --request DELETE >/dev/null || true
  [[ -n $version ]] && echo "Chromium $version"
}
