#!/usr/bin/env bash
# daemon.sh RUN DATA GROUP: first process of a private Docker's namespaces (process ids, mounts, network). When it ends,
# however it ends, the kernel ends every process in them and takes mounts, bridges and iptables rules away.
# RUN holds sockets, DATA images and containers; GROUP is the control group of all containers.
set -euo pipefail
run=$1 data=$2 group=$3
here=$(cd "$(dirname "$0")" && pwd)
runtime=()

ip link set lo up
# Nothing outside can be reached from here: let every try be refused at once, not one a second.
echo 0 >/proc/sys/net/ipv4/icmp_ratelimit
# Root of some machines lacks a capability; `docker run --privileged` would fail for want of it.
if (((0x$(awk '/^CapBnd:/{print $2}' /proc/self/status) >> 24 & 1) == 0)); then # CAP_SYS_RESOURCE
  runtime=(--add-runtime "less=$here/runc-less.sh" --default-runtime less)
fi
echo '{}' >"$run/daemon.json" # the machine's own Docker configuration is not ours
# In the background: bash as first process then reaps what containers leave behind.
dockerd --config-file "$run/daemon.json" --host "unix://$run/docker.sock" --pidfile "$run/docker.pid" \
  --data-root "$data" --exec-root "$run/exec" --storage-driver overlay2 --exec-opt native.cgroupdriver=cgroupfs \
  --cgroup-parent "$group" "${runtime[@]}" &
wait $!
