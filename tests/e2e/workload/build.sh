#!/bin/bash
# Clones a repository and builds it, again and again; the number of rounds is in built.state.
set -e
trap 'echo "broken with $?" >/home/user/w/built.state' EXIT
export HOME=/home/user GIT_CONFIG_NOSYSTEM=1
cd /home/user/w
if [ ! -d repo ]; then
  git init -q repo
  main='#include <stdio.h>'
  sum=0
  for part in $(seq 20); do
    {
      echo '#include <math.h>'
      for n in $(seq 40); do echo "static double f$n(double x) { return sin(x) * $n + cos(x) / ($n + x * x); }"; done
      echo "int part$part(void) { volatile double x = 1; for (int i = 0; i < 9; i++) x = f1(f40(x)) + f7(x); return $part; }"
    } >"repo/part$part.c"
    main+=$'\n'"int part$part(void);"
    sum+="+part$part()"
  done
  echo "$main"$'\n'"int main(void) { printf(\"%d\\n\", $sum); }" >repo/main.c
  printf 'CFLAGS = -O2 -pipe\nobjects = $(patsubst %%.c,%%.o,$(wildcard *.c))\nsum: $(objects)\n\t$(CC) -o $@ $^ -lm\n' >repo/Makefile
  git -C repo add .
  git -C repo -c user.name=w -c user.email=w@w commit -q -m all
fi
round=0
while :; do
  rm -rf clone
  git clone -q "file:///home/user/w/repo" clone
  make -s -C clone
  test "$(clone/sum)" = 210
  round=$((round + 1))
  echo "$round" >built.new
  mv built.new built.state
done
