#!/usr/bin/env bash
# dependencies.sh BASE_TAR REQUIREMENTS PYTHON OUT: /opt/headrace, a virtual environment for the base's Python with the
# locked requirements, as OUT/layer.tar to lie on the base. PYTHON is one of this machine with pip; its version is free.
set -euo pipefail
base=$1 requirements=$2 python=$3 out=$4
root=$out/root

mkdir "$root"
tar --extract --numeric-owner --directory "$root" --file "$base"
chroot "$root" python3 -m venv --without-pip /opt/headrace
site=$(chroot "$root" /opt/headrace/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
version=$(chroot "$root" python3 -c 'import sys; print(f"{sys.version_info.major}{sys.version_info.minor}")')
glibc=$(chroot "$root" python3 -c 'import platform; print(platform.libc_ver()[1].split(".")[1])')

options=(--implementation cp --python-version "$version" --abi "cp$version" --abi abi3 --abi none)
for minor in $(seq 5 "$glibc"); do options+=(--platform "manylinux_2_${minor}_$(uname -m)"); done
options+=(--platform "manylinux2014_$(uname -m)")
"$python" -m pip --quiet --disable-pip-version-check install --target "$root$site" --no-compile --no-deps \
  --root-user-action=ignore --only-binary=:all: --require-hashes "${options[@]}" --requirement "$requirements"
rm -rf "$root$site/bin"
chroot "$root" /opt/headrace/bin/python -m compileall -q "$site" # a pod's root may be read-only
tar --create --numeric-owner --owner=0 --group=0 --sort=name --directory "$root" --file "$out/layer.tar" ./opt/headrace
rm -rf "$root"
