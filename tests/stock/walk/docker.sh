# Docker of Debian's packages beside Roost. After the reboot it starts before Roost does.
# shellcheck shell=bash

walk_docker() {
  step "Docker is installed beside Roost" docker_installed
  step "native: the internet is reached beside Docker" docker_leaves_forwarding native
  step "gvisor: the internet is reached beside Docker" docker_leaves_forwarding gvisor
  step "Roost starts after Docker from now on" docker_goes_first
}

walk_docker_first() {
  step "Docker started first" docker_was_first
  step "native: the internet is reached, Docker first" docker_leaves_forwarding native
  step "gvisor: the internet is reached, Docker first" docker_leaves_forwarding gvisor
  step "doctor names a policy that drops forwarded packets" names_dropped_forwarding
}

docker_installed() {
  DEBIAN_FRONTEND=noninteractive apt-get install -y docker.io
  until_true 120 systemctl is-active docker
}

forward_policy() { iptables -S FORWARD | head -n 1; }

docker_leaves_forwarding() { # docker_leaves_forwarding ENGINE
  note "$(forward_policy)"
  roost create docker-walk -t mini --engine "$1"
  reaches_the_internet docker-walk
  roost rm docker-walk
}

docker_goes_first() {
  mkdir -p /etc/systemd/system/roost.service.d
  printf '[Unit]\nAfter=docker.service\n' >/etc/systemd/system/roost.service.d/docker.conf
  systemctl daemon-reload
}

started_at() { systemctl show -p ActiveEnterTimestampMonotonic --value "$1"; }

docker_was_first() {
  until_true 300 systemctl is-active docker
  until_true 300 systemctl is-active roost
  (($(started_at docker) < $(started_at roost))) || fail "Docker started after Roost"
}

names_dropped_forwarding() {
  local said
  iptables -P FORWARD DROP
  said=$(roost doctor --no-prove) || true
  iptables -P FORWARD ACCEPT
  echo "$said"
  grep -i docker <<<"$said"
}
