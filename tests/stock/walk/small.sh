# A machine with 1 GiB of memory: a hog with default limits meets its own limit, not the machine's OOM killer.
# shellcheck shell=bash

walk_small() {
  step "the default limit of memory leaves room for the machine" default_is_sensible
  step "native: a hog meets its own limit" meets_own_limit native
  step "gvisor: a hog meets its own limit" meets_own_limit gvisor
  step "two hogs at once: the machine's OOM killer stays away" two_hogs
}

# Kills by the machine's own OOM killer; those by the limit of a group have another constraint.
host_kills() { journalctl -k -b -o cat | grep -c 'oom-kill:constraint=CONSTRAINT_NONE' || true; }

default_is_sensible() {
  local total limit
  total=$(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) * 1024))
  roost create usual -t mini
  limit=$(field usual limits.memory)
  roost rm usual
  note "$((limit >> 20)) of $((total >> 20)) MiB"
  ((limit <= total * 6 / 10)) || fail "the default limit is $limit of $total bytes"
  ((limit >= 256 << 20)) || fail "the default limit is $limit bytes only"
}

hog() { # hog SANDBOX: fills memory until something ends it
  local code=0
  roost exec "$1" -- dd if=/dev/zero of=/dev/null bs=2000M count=1 || code=$?
  ((code != 0)) || fail "2000 MB fit into the default limit"
}

meets_own_limit() { # meets_own_limit ENGINE
  local daemon
  daemon=$(main_pid)
  roost create "hog-$1" -t mini --engine "$1" --idle-after never
  hog "hog-$1"
  expect alive "$(roost exec "hog-$1" -- echo alive)"
  expect 0 "$(host_kills)"
  expect "$daemon" "$(main_pid)"
}

two_hogs() {
  local daemon pids=() pid
  daemon=$(main_pid)
  hog hog-native &
  pids+=("$!")
  hog hog-gvisor &
  pids+=("$!")
  for pid in "${pids[@]}"; do wait "$pid"; done
  expect alive "$(roost exec hog-native -- echo alive)"
  expect alive "$(roost exec hog-gvisor -- echo alive)"
  expect "$daemon" "$(main_pid)"
  roost rm hog-native hog-gvisor
  note "kills by the machine itself: $(host_kills)"
}
