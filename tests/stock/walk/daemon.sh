# Sandboxes go on while the daemon is restarted, stopped and killed.
# shellcheck shell=bash

walk_daemon() {
  step "sandboxes for the daemon's restarts" make_lasting
  step "systemctl restart: sandboxes go on" restarts
  step "stop, daemon-reexec and start: sandboxes go on" stops_and_starts
  step "kill -9 of the daemon: sandboxes go on" survives_kill
  step "sandboxes for the daemon's restarts are removed" roost rm lasting-native lasting-gvisor
}

make_lasting() {
  local engine
  for engine in native gvisor; do
    roost create "lasting-$engine" -t mini --engine "$engine" --idle-after never
    witness_start "lasting-$engine" "lasting-$engine"
  done
}

lasting_went_on() {
  local engine
  for engine in native gvisor; do
    expect active "$(field "lasting-$engine" state)"
    expect 1 "$(field "lasting-$engine" generation)"
    witness_says "lasting-$engine" "lasting-$engine"
  done
}

restarts() {
  local before
  before=$(main_pid)
  systemctl restart roost
  [[ $(main_pid) != "$before" ]]
  lasting_went_on
}

stops_and_starts() {
  systemctl stop roost
  # What systemd does to control groups that it knows, it does now.
  systemctl daemon-reload
  systemctl daemon-reexec
  systemctl start roost
  lasting_went_on
}

is_another_daemon() {
  local pid
  pid=$(main_pid)
  ((pid > 0 && pid != $1)) && daemon_answers
}

survives_kill() {
  local before
  before=$(main_pid)
  kill -KILL "$before"
  until_true 120 is_another_daemon "$before"
  lasting_went_on
  contains daemon_restarted "$(roost events --no-follow)"
}
