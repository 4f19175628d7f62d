#!/usr/bin/env bash
# base.sh PACKAGES OUT: a small Debian with the packages that the file PACKAGES names, as OUT/base.tar.
set -euo pipefail
packages=$(paste --serial --delimiters=, "$1") out=$2 suite=bookworm
root=$out/root

# The machine's own mirror where it is a Debian with one; else debootstrap's.
mirror=${HEADRACE_DEBIAN_MIRROR:-}
if [ -z "$mirror" ] && [ "$(. /etc/os-release && echo "${ID:-}")" = debian ]; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" | head -n 1)
fi

mkdir -p "$root"
debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${mirror:+"$mirror"} >"$out/debootstrap.log" 2>&1 || {
  tail -n 20 "$out/debootstrap.log" >&2
  exit 1
}
rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bash-completion} "$root"/var/lib/apt/lists/* \
  "$root"/var/cache/apt/* "$root"/var/log/* "$root"/usr/lib/udev/hwdb.* "$root"/etc/machine-id
tar --create --numeric-owner --one-file-system --directory "$root" --file "$out/base.tar" .
rm -rf "$root" "$out/debootstrap.log"
