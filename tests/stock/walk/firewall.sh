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
    roost cp "$STOCK_STATE/connects" "try-$engine:/root/connects"
    # An attempt without an answer takes half a second, as the pause after it does: two programs try twice a second.
    roost exec -d "try-$engine" -- sh -c "
      /root/connects $host_address $host_port always >/root/tries.1 &
      /root/connects $host_address $host_port always >/root/tries.2"
    inside "try-$engine" 'until [ -s /root/tries.1 ] && [ -s /root/tries.2 ]; do sleep 0.5; done'
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

# Prints how many milliseconds the program in the sandbox needed for a new connection to the internet.
connects() {
  local began=${EPOCHREALTIME/./} line
  echo go >&"${prober[1]}"
  read -r -t 120 line <&"${prober[0]}" || fail "no connection to the internet within two minutes" || return
  expect back "$line"
  echo "$(((${EPOCHREALTIME/./} - began) / 1000))"
}

returns_each_time() { # returns_each_time SANDBOX
  local round usual took slowest_usual=0 slowest=0
  coproc prober { roost exec -i "$1" -- /root/connects "$internet_address" 80; }
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
    tries=$(inside "try-$engine" 'cat /root/tries.1 /root/tries.2 | wc -l')
    total=$((total + tries))
    if inside "try-$engine" 'grep -q reached /root/tries.1 /root/tries.2'; then fail "try-$engine connected to the host"; fi
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
