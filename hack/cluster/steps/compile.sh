#!/usr/bin/env bash
# compile.sh BASE_TAR SOURCE PYTHON OUT: the extension modules of the router's hot modules, for the base's Python, below
# OUT/modules as they lie beside their source. The base has a C compiler; PYTHON is one of this machine with pip.
set -euo pipefail
base=$1 source=$2 python=$3 out=$4
. "$(dirname "$0")/root.sh"

install_locked /tools "$python" "$source/requirements/compile.txt" "$source/requirements/router.txt"
mkdir -p "$root/source/hack" "$root/source/router" "$root/source/crds" "$root/made"
cp -r "$source/hack/compile" "$root/source/hack/"
cp -r "$source/router/headrace_router" "$root/source/router/"
cp -r "$source/crds/headrace_api" "$root/source/crds/"
chroot "$root" env PYTHONPATH=/tools python3 /source/hack/compile/package.py /made "$(nproc)"
mkdir "$out/modules"
(cd "$root/made" && find . -name '*.so' -exec cp --parents {} "$out/modules" \;)
rm -rf "$root"
