# What steps of every chapter use.
# shellcheck shell=bash

# A public address of the machine itself, on a device that leads nowhere.
host_address=203.0.114.7
# The address of a server "on the internet": a network namespace of the machine, behind a route.
internet_address=93.184.215.14
# A server on all addresses of the machine writes a line into this file for every connection.
host_port=8099
host_log=$STOCK_STATE/connections

fail() {
  echo "$*" >&2
  return 1
}

# Adds a remark to the line of the running step.
note() { printf '%s' "$*" >"$STOCK_STATE/note"; }

expect() { # expect WANTED ACTUAL
  [[ $1 == "$2" ]] || fail "expected \`$1\`, found \`$2\`"
}

contains() { # contains PART TEXT
  [[ $2 == *"$1"* ]] || fail "expected \`$1\` in: $2"
}

until_true() { # until_true SECONDS COMMAND...: tries the command until it succeeds
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "within the time never true: $*" || return
    sleep 0.2
  done
}

daemon_answers() { roost ls -q; }

# Prints the pid of the daemon, 0 if it does not run.
main_pid() { systemctl show -p MainPID --value roost; }

# Prints a field of a sandbox, for example `level`; nested fields have dots.
field() { # field SANDBOX FIELD
  roost ls --json | python3 -c '
import json, sys
value = next(s for s in json.load(sys.stdin) if s["name"] == sys.argv[1])
for key in sys.argv[2].split("."):
    value = value[key]
print(value)' "$1" "$2"
}

inside() { # inside SANDBOX SCRIPT: a script for the shell in a sandbox, at most two minutes
  roost exec --timeout 120s "$1" -- sh -c "$2"
}

# Starts a process that has WORD in its memory alone, and says it when it gets a signal.
witness_start() { # witness_start SANDBOX WORD
  roost exec -d "$1" -- sh -c '
    word='"$2"'
    trap "echo \$word >/root/answer.new; mv /root/answer.new /root/answer" USR1
    echo $$ >/root/witness.pid
    while :; do sleep 1; done' >/dev/null
  # shellcheck disable=SC2016 # the shell in the sandbox expands it
  inside "$1" 'until [ -s /root/witness.pid ]; do sleep 0.1; done'
}

# Fails unless the process of witness_start is there with its memory. Wakes the sandbox.
witness_says() { # witness_says SANDBOX WORD
  local said
  # shellcheck disable=SC2016
  said=$(inside "$1" 'rm -f /root/answer; kill -USR1 $(cat /root/witness.pid) || exit 1
    until [ -e /root/answer ]; do sleep 0.5; done; cat /root/answer')
  expect "$2" "$said"
}

witness_is_gone() { # witness_is_gone SANDBOX
  # shellcheck disable=SC2016
  inside "$1" '! grep -q witness.pid /proc/$(cat /root/witness.pid)/cmdline 2>/dev/null'
}

# Gives the machine an "internet" with a web server, a public address of its own, and the server that counts connections.
world_up() {
  ip netns add internet
  ip link add internet type veth peer name uplink netns internet
  ip addr add 192.168.77.1/30 dev internet
  ip link set internet up
  ip -n internet addr add 192.168.77.2/30 dev uplink
  ip -n internet addr add "$internet_address/32" dev lo
  ip -n internet link set lo up
  ip -n internet link set uplink up
  ip -n internet route add default via 192.168.77.1
  ip route add "$internet_address/32" via 192.168.77.2
  ip link add public type dummy
  ip link set public up
  ip addr add "$host_address/24" dev public
  mkdir -p "$STOCK_STATE/web"
  echo 'from the internet' >"$STOCK_STATE/web/index.html"
  systemd-run -q --collect --unit=stock-internet ip netns exec internet busybox httpd -f -p 80 -h "$STOCK_STATE/web"
  : >"$host_log"
  systemd-run -q --collect --unit=stock-host -p "StandardOutput=append:$host_log" python3 -c "
import socket
server = socket.create_server(('', $host_port), backlog=64)
while True:
    connection, peer = server.accept()
    print(peer[0], flush=True)
    connection.close()"
  # Both servers work, as the machine itself sees them: what sandboxes cannot reach is not simply absent.
  until_true 60 curl -sf "http://$internet_address/"
  until_true 60 host_counts_connections
  : >"$host_log"
}

host_counts_connections() {
  (exec 3<>"/dev/tcp/$host_address/$host_port") && [[ -s $host_log ]]
}

no_connection_to_the_host() {
  [[ ! -s $host_log ]] || fail "sandboxes connected to the host $(wc -l <"$host_log") times, from $(sort -u "$host_log" | head -n 3)"
}

# The wget of busybox 1.35 crashes when it is given a timeout of its own.
reaches_the_internet() { # reaches_the_internet SANDBOX
  expect 'from the internet' "$(inside "$1" "timeout 10 wget -q -O - http://$internet_address/")"
}

cannot_reach_the_host() { # cannot_reach_the_host SANDBOX
  local address
  for address in "$host_address" 10.0.2.15 192.168.77.1; do
    if inside "$1" "nc -w 2 $address $host_port </dev/null || nc -w 2 $address 22 </dev/null"; then
      fail "connected to $address"
    fi
  done
  no_connection_to_the_host
}
