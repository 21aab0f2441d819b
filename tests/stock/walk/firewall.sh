# The host's firewall is flushed, reloaded and restarted while sandboxes try to connect to the host's public address twice
# a second. No connection may succeed, and sandboxes reach the internet again within a second.
# shellcheck shell=bash

rounds=20
# Milliseconds that the slowest new connection after a reload may take longer than the slowest one without a reload.
longest_outage=1000

walk_firewall() {
  local engine
  step "nftables with Debian's own rules" nftables_runs
  step "sandboxes that try to reach the host all the time" make_tries
  for engine in native gvisor; do
    step "$engine: back on the internet after $rounds reloads" returns_each_time "try-$engine"
  done
  step "no connection to the host during the reloads" never_reached_the_host
  step "doctor finds nothing in the way" nothing_in_the_way
}

nftables_runs() {
  systemctl enable --now nftables
  until_true 30 nothing_in_the_way
}

make_tries() {
  local engine
  : >"$host_log"
  for engine in native gvisor; do
    roost create "try-$engine" -t mini --engine "$engine" --idle-after never
    roost exec -d "try-$engine" -- sh -c "
      while :; do
        echo try >>/root/tries
        (nc -w 1 $host_address $host_port </dev/null && echo reached >>/root/reached) &
        sleep 0.5
      done"
    inside "try-$engine" 'until [ -s /root/tries ]; do sleep 0.1; done'
    reaches_the_internet "try-$engine"
  done
}

disturb() { # disturb ROUND
  # systemd refuses a service that starts too often.
  systemctl reset-failed nftables
  case $(($1 % 3)) in
    0) nft flush ruleset ;;
    1) systemctl restart nftables ;;
    2) systemctl reload nftables ;;
  esac
}

# Prints how many milliseconds the shell in the sandbox needed for a new connection to the internet.
connects() {
  local began=${EPOCHREALTIME/./} line
  echo go >&"${shell_inside[1]}"
  read -r -t 120 line <&"${shell_inside[0]}" || fail "no connection to the internet within two minutes" || return
  expect back "$line"
  echo "$(((${EPOCHREALTIME/./} - began) / 1000))"
}

returns_each_time() { # returns_each_time SANDBOX
  local round usual took slowest_usual=0 slowest=0
  # For each line that it reads, the shell inside says `back` as soon as a new connection to the internet succeeds.
  # An attempt that began too early sends again only after a second, so a new one starts each 0.3 s.
  coproc shell_inside { roost exec -i "$1" -- sh -c "
    while read -r line; do
      rm -f /root/back
      until [ -e /root/back ]; do
        (timeout 2 wget -q -O /dev/null http://$internet_address/ && : >/root/back) 2>/dev/null &
        sleep 0.3
      done
      echo back
    done"; }
  for ((round = 0; round < rounds; round++)); do
    # A connection takes its time under emulation, so each round first measures one without a disturbance.
    usual=$(connects)
    disturb "$round"
    took=$(connects)
    echo "round $round: $took ms, $usual ms undisturbed"
    if ((usual > slowest_usual)); then slowest_usual=$usual; fi
    if ((took > slowest)); then slowest=$took; fi
  done
  note "after at most $slowest ms, undisturbed $slowest_usual ms"
  ((slowest <= slowest_usual + longest_outage)) || fail "a reload cost more than $longest_outage ms"
}

never_reached_the_host() {
  local engine tries total=0
  for engine in native gvisor; do
    tries=$(inside "try-$engine" 'wc -l </root/tries')
    total=$((total + tries))
    roost exec "try-$engine" -- test ! -e /root/reached || fail "try-$engine connected to the host"
  done
  no_connection_to_the_host
  note "$total tries"
  # The server still counts: a connection of the machine itself is seen.
  until_true 10 host_counts_connections
  : >"$host_log"
  roost rm try-native try-gvisor
}

nothing_in_the_way() {
  contains 'nothing stands in the way' "$(roost doctor --no-prove)"
}
