#!/usr/bin/env bash
# prometheus.sh OUT: Debian's Prometheus as OUT/prometheus and OUT/layer.tar. Unpacked, not installed: its package would
# start a service. apt checks the archive's signature and the package's sum, as for any package.
set -euo pipefail
out=$1
cd "$out"
fetch() { apt-get download -o APT::Sandbox::User=root prometheus >fetch.log 2>&1; }
fetch || { apt-get update >>fetch.log 2>&1 && fetch; } || {
  tail -n 20 fetch.log >&2
  exit 1
}
mkdir root
dpkg-deb --extract prometheus_*.deb root
install -D --mode 0755 root/usr/bin/prometheus layer/usr/bin/prometheus
tar --create --numeric-owner --owner 0 --group 0 --directory layer --file layer.tar .
mv layer/usr/bin/prometheus prometheus
rm -rf root layer fetch.log prometheus_*.deb
./prometheus --version 2>&1 | head -n 1
