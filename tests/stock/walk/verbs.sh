# Every verb on both engines. Sandboxes are called after their engine and their purpose.
# shellcheck shell=bash

walk_verbs() {
  local engine
  for engine in native gvisor; do
    step "$engine: create" creates "$engine"
    step "$engine: exec passes output and exit codes" executes "$engine"
    step "$engine: root inside" is_root "$engine"
    step "$engine: a terminal" has_terminal "$engine"
    step "$engine: a memory hog is killed, the sandbox lives" kills_memory_hog "$engine"
    step "$engine: the limit of processes holds" limits_processes "$engine"
    step "$engine: the limit of the disk holds" limits_disk "$engine"
    step "$engine: suspend to ram and wake" suspends_to_ram "$engine"
    step "$engine: suspend to disk and wake" suspends_to_disk "$engine"
    step "$engine: suspend to files and wake" suspends_to_files "$engine"
    step "$engine: checkpoint and restore" restores "$engine"
    step "$engine: fork three" forks "$engine"
    step "$engine: a port is served, and wakes a sandbox from disk" serves_port "$engine"
    step "$engine: the internet is reached" reaches_the_internet "$engine"
    step "$engine: the host is not reached" cannot_reach_the_host "$engine"
    step "$engine: ssh" speaks_ssh "$engine"
    step "$engine: cp in both directions" copies "$engine"
    step "$engine: run leaves nothing behind" runs_once "$engine"
    step "$engine: why" says_why "$engine"
    step "$engine: rm" removes "$engine"
  done
}

creates() {
  roost create "$1" -t mini --engine "$1" --idle-after never
  expect active "$(field "$1" state)"
  expect "$1" "$(field "$1" engine)"
}

executes() {
  local code=0
  expect hello "$(roost exec "$1" -- echo hello)"
  expect piped "$(echo piped | roost exec -i "$1" -- cat)"
  roost exec "$1" -- sh -c 'exit 7' || code=$?
  expect 7 "$code"
}

is_root() {
  expect 0 "$(roost exec -u root "$1" -- id -u)"
  roost exec -u root "$1" -- sh -c 'touch /etc/mine && chown 1000 /etc/mine && rm /etc/mine'
}

has_terminal() {
  contains /dev/pts/ "$(script -qec "roost exec -it $1 -- tty" /dev/null)"
}

kills_memory_hog() {
  local code=0
  roost create "$1-hog" -t mini --engine "$1" --memory 128m --idle-after never
  # dd fills a buffer of that size.
  roost exec "$1-hog" -- dd if=/dev/zero of=/dev/null bs=600M count=1 || code=$?
  ((code != 0)) || fail "600 MB fit into a limit of 128 MB"
  # On gVisor all of the sandbox may end, which then starts from its files.
  expect alive "$(roost exec "$1-hog" -- echo alive)"
  roost rm "$1-hog"
}

limits_processes() {
  local count
  roost create "$1-many" -t mini --engine "$1" --pids 60 --idle-after never
  # gVisor may end a sandbox that reaches the limit.
  roost exec "$1-many" -- sh -c 'n=0; while [ $n -lt 2000 ]; do sleep 300 & n=$((n + 1)); done; wait' &
  # The limit is reached when the processes of its group on the host no longer rise: never more than the limit.
  until_true 120 ended_or_full "$1-many" "$!"
  count=$(processes_of "$1-many")
  note "$count processes"
  ((count <= 60)) || fail "$count processes in a sandbox with a limit of 60"
  roost rm "$1-many"
  wait || true
}

processes_of() { # processes_of SANDBOX: prints how many the host counts
  roost stats "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["pids"])'
}

# Whether the command with that pid ended, or the sandbox is within ten processes of its limit of 60.
ended_or_full() { # ended_or_full SANDBOX PID
  ! kill -0 "$2" 2>/dev/null || (($(processes_of "$1") >= 50))
}

limits_disk() {
  local code=0 kilobytes
  roost create "$1-disk" -t mini --engine "$1" --disk 100m --idle-after never
  # Random bytes: the pool compresses, and what it saves belongs to the sandbox.
  roost exec "$1-disk" -- dd if=/dev/urandom of=/root/big bs=1M count=200 conv=fsync || code=$?
  kilobytes=$(roost exec "$1-disk" -- du -k /root/big | cut -f1)
  note "$((kilobytes / 1024)) of 200 MB were written"
  ((code != 0)) || fail "200 MB fit into a limit of 100 MB"
  ((kilobytes <= 110 * 1024)) || fail "$kilobytes KB in a sandbox with a limit of 100 MB"
  roost exec "$1-disk" -- rm /root/big
  roost exec "$1-disk" -- dd if=/dev/urandom of=/root/small bs=1M count=20 conv=fsync
  roost rm "$1-disk"
}

suspends_to_ram() {
  witness_start "$1" ram-word
  roost suspend "$1" --to ram
  expect ram "$(field "$1" level)"
  roost wake "$1"
  expect active "$(field "$1" state)"
  witness_says "$1" ram-word
}

suspends_to_disk() {
  roost suspend "$1" --to disk
  expect disk "$(field "$1" level)"
  roost wake "$1"
  witness_says "$1" ram-word
}

suspends_to_files() {
  roost exec "$1" -- sh -c 'echo kept >/root/kept'
  roost suspend "$1" --to files
  expect files "$(field "$1" level)"
  roost wake "$1"
  expect kept "$(roost exec "$1" -- cat /root/kept)"
  witness_is_gone "$1"
}

restores() {
  local checkpoint
  witness_start "$1" first-word
  roost exec "$1" -- sh -c 'echo before >/root/state'
  checkpoint=$(roost checkpoint "$1" -q)
  witness_says "$1" first-word
  # shellcheck disable=SC2016
  inside "$1" 'echo after >/root/state; kill -KILL $(cat /root/witness.pid); rm /root/witness.pid'
  roost restore "$1" "$checkpoint"
  expect before "$(roost exec "$1" -- cat /root/state)"
  witness_says "$1" first-word
}

forks() {
  local fork
  witness_start "$1" forked-word
  roost fork "$1" --names "$1-a,$1-b,$1-c"
  roost exec "$1-a" -- sh -c 'echo a >/root/mine'
  for fork in "$1-a" "$1-b" "$1-c" "$1"; do witness_says "$fork" forked-word; done
  if roost exec "$1-b" -- test -e /root/mine; then fail "a fork sees a file of its sibling"; fi
  roost rm "$1-a" "$1-b" "$1-c"
}

serves_port() {
  local link jar
  jar=$(mktemp)
  roost exec "$1" -- sh -c 'mkdir -p /srv/web && echo served >/srv/web/index.html'
  roost exec -d "$1" -- httpd -f -p 8080 -h /srv/web
  link=$(roost open "$1" 8080 --link 1h -q)
  until_true 60 curl -sfL -b "$jar" -c "$jar" "$link"
  roost suspend "$1" --to disk
  expect served "$(curl -sSfL -b "$jar" -c "$jar" "$link")"
  expect active "$(field "$1" state)"
}

speaks_ssh() {
  local key=$STOCK_STATE/id_ed25519
  if [[ ! -e $key ]]; then
    ssh-keygen -q -t ed25519 -N '' -f "$key"
    roost key add "$key.pub" --name walk
  fi
  local ssh=(-F none -q -i "$key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null)
  expect 'by ssh' "$(ssh "${ssh[@]}" -p 2222 "$1@127.0.0.1" 'echo by ssh')"
  echo sent >"$STOCK_STATE/sent"
  scp "${ssh[@]}" -P 2222 "$STOCK_STATE/sent" "$1@127.0.0.1:sent"
  expect sent "$(roost exec "$1" -- cat /root/sent)"
}

copies() {
  local here
  here=$(mktemp -d)
  mkdir "$here/out"
  head -c 3000000 /dev/urandom >"$here/out/data"
  roost cp "$here/out" "$1:/root/copied"
  roost cp "$1:/root/copied" "$here/back"
  cmp "$here/out/data" "$here/back/data"
}

runs_once() {
  local before
  before=$(roost ls -q | sort)
  expect done "$(roost run mini --engine "$1" -- echo done)"
  expect "$before" "$(roost ls -q | sort)"
}

says_why() {
  contains 'awake since' "$(roost why "$1")"
}

removes() {
  roost rm "$1"
  if roost ls -q --json | grep -q "\"name\":\"$1\""; then fail "it is still listed"; fi
}
