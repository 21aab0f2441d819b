# Sandboxes sleep on disk while the machine is rebooted, and wake with their memory.
# shellcheck shell=bash

# Before the reboot.
walk_asleep() {
  step "native: asleep on disk for the reboot" sleeps_on_disk native
  step "gvisor: asleep on disk for the reboot" sleeps_on_disk gvisor
  step "a sandbox is awake at the reboot" awake_at_reboot
}

# After it.
walk_awake() {
  step "the service runs after the reboot" is_back
  step "the machine has its internet again" world_up
  step "native: wakes with memory after the reboot" wakes_with_memory native
  step "gvisor: wakes with memory after the reboot" wakes_with_memory gvisor
  step "the sandbox that was awake starts from its files" starts_from_files
  step "native: the internet is reached after the reboot" reaches_the_internet slept-native
  step "native: the host is not reached after the reboot" cannot_reach_the_host slept-native
  step "sandboxes of the reboot are removed" roost rm slept-native slept-gvisor was-awake
}

sleeps_on_disk() {
  roost create "slept-$1" -t mini --engine "$1"
  witness_start "slept-$1" "slept-$1"
  roost suspend "slept-$1" --to disk
}

awake_at_reboot() {
  roost create was-awake -t mini --engine native --idle-after never
  roost exec was-awake -- sh -c 'echo kept >/root/kept && sync'
}

is_back() {
  until_true 300 systemctl is-active roost
  until_true 120 daemon_answers
}

wakes_with_memory() {
  expect disk "$(field "slept-$1" level)"
  witness_says "slept-$1" "slept-$1"
}

starts_from_files() {
  expect kept "$(roost exec was-awake -- cat /root/kept)"
}
