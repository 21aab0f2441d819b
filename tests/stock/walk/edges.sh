# Cases at the edge: a small gVisor sandbox goes to disk, a host that forbids tracing, and the package's removal.
# shellcheck shell=bash

walk_edges() {
  step "gvisor: 128 MB after many short processes, to disk and back" small_goes_to_disk
  # Only a reboot undoes this one.
  step "doctor names yama's ptrace_scope=3" names_ptrace_scope
  step "apt purge leaves nothing" purges
}

# Each process that ran makes the image larger, and a wake has two minutes: under emulation 1200 processes are too many.
small_goes_to_disk() {
  roost create tight -t mini --engine gvisor --memory 128m --idle-after never
  witness_start tight tight-word
  # shellcheck disable=SC2016
  roost exec tight -- sh -c '
    : >/root/a
    n=0
    while [ $n -lt 150 ]; do mv /root/a /root/b; sleep 0; mv /root/b /root/a; sleep 0; n=$((n + 1)); done'
  roost suspend tight --to disk
  expect disk "$(field tight level)"
  witness_says tight tight-word
  roost rm tight
}

names_ptrace_scope() {
  local said
  sysctl -w kernel.yama.ptrace_scope=3
  said=$(roost doctor --no-prove) || true
  echo "$said"
  [[ $(grep -c ptrace_scope <<<"$said") -ge 2 ]] || fail "not named for both engines"
}

purges() {
  roost create left-behind -t mini --engine native
  DEBIAN_FRONTEND=noninteractive apt-get purge -y roost
  [[ ! -e /var/lib/roost && ! -e /run/roost ]] || fail "folders are left"
  if grep roost /proc/self/mountinfo; then fail "mounts are left"; fi
  if pgrep -a 'roost|runsc'; then fail "processes are left"; fi
  if nft list tables | grep roost; then fail "rules are left"; fi
  if ip -brief link | grep '^ro'; then fail "links are left"; fi
}
