#!/bin/bash
# Starts everything, the build only if asked for, and returns when each part has answered once.
set -e
cd /home/user/w
mkdir -p data
for n in $(seq 100); do head -c 20000 /dev/urandom >"data/$n"; done
echo 0 >built.state
start() { setsid "$@" </dev/null >>/home/user/w/log 2>&1 & }
start python3 server.py
start python3 stream.py pipe
start python3 stream.py tcp
start node counter.js
if [ "$1" = build ]; then start bash build.sh; fi
tmux new-session -d -s w -x 80 -y 24 'bash --norc'
tmux send-keys -t w "V='in tmux'; N=0" Enter
for tries in $(seq 600); do
  if curl -sf 127.0.0.1:8000/ >/dev/null && curl -sf 127.0.0.1:8001/ >/dev/null && [ -s pipe.state ] && [ -s tcp.state ]; then
    exit 0
  fi
  sleep 0.05
done
cat log >&2
exit 1
