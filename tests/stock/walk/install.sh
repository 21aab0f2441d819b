# The package is installed as a user installs it, and the package's helpers bring CRIU and runsc.
# shellcheck shell=bash

walk_install() {
  step "apt installs the package" apt_installs
  step "the service runs" service_runs
  step "CRIU and runsc are brought by the package's helpers" helpers_bring_tools
  step "the template mini is there" mini_is_there
  step "doctor proves both engines" doctor_proves_both
  step "the machine has an internet and a public address" world_up
}

apt_installs() {
  local package=("$STOCK_STATE"/roost_*.deb)
  DEBIAN_FRONTEND=noninteractive apt-get install -y "${package[0]}"
}

service_runs() {
  systemctl is-enabled roost
  until_true 120 systemctl is-active roost
  until_true 120 daemon_answers
}

# Files that the host has brought along are taken where the machine does not reach a mirror.
helpers_bring_tools() {
  local tool brought=()
  for tool in criu runsc; do
    if ! "/usr/lib/roost/$tool" "/var/lib/roost/$tool"; then
      [[ -d $STOCK_STATE/tools/$tool ]] || fail "the helper for $tool failed, and no copy was brought along"
      cp -a "$STOCK_STATE/tools/$tool" /var/lib/roost/
      brought+=("$tool")
    fi
  done
  if ((${#brought[@]})); then note "copies of the host: ${brought[*]}"; fi
  systemctl restart roost
  daemon_answers
}

mini_is_there() {
  if ! roost template ls -q | grep -qx mini; then roost template build mini; fi
  roost template ls -q | grep -qx mini
}

doctor_proves_both() {
  local said
  said=$(roost doctor)
  echo "$said"
  grep -q '^engine native: works' <<<"$said"
  grep -q '^engine gvisor: works' <<<"$said"
  [[ $(grep -c 'sleeps   ram, disk, files' <<<"$said") == 2 ]] || fail "an engine cannot sleep on disk"
  # A line that starts with `no` is a fault of the machine or of Roost.
  if grep -E '^  no ' <<<"$said"; then return 1; fi
  note "$(sed -n 's/^  ok   disk limits *//p' <<<"$said")"
}
