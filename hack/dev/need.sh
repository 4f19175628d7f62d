#!/usr/bin/env bash
# need.sh PROGRAM[=PACKAGE]...: programs that must be there; installed through apt when we are root, else named.
set -euo pipefail
missing=()
for want in "$@"; do
  command -v "${want%%=*}" >/dev/null || missing+=("${want#*=}")
done
[ ${#missing[@]} = 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "headrace: missing: ${missing[*]}; install them, or run as root on Debian" >&2
  exit 3
fi
