#!/usr/bin/env bash
# system.sh PROGRAM...: Debian's programs that the benchmark needs, by hack/dev/need.sh; their services are neither started nor
# enabled.
set -euo pipefail
here=$(dirname "$0")
missing=()
for want in "$@"; do
  PATH=$PATH:/usr/sbin command -v "$want" >/dev/null || missing+=("$want")
done
[ ${#missing[@]} = 0 ] && exit 0
policy=/usr/sbin/policy-rc.d
if [ "$(id -u)" = 0 ] && [ -d /usr/sbin ] && [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy # Debian's way to say: start no service
  chmod 755 $policy
fi
"$here/../../dev/need.sh" "${missing[@]}"
for unit in nginx haproxy; do
  case " ${missing[*]} " in *" $unit "*) command -v systemctl >/dev/null && systemctl disable --quiet "$unit" 2>/dev/null || true ;; esac
done
