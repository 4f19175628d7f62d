#!/usr/bin/env bash
# dependencies.sh BASE_TAR REQUIREMENTS PYTHON OUT: /opt/headrace, a virtual environment for the base's Python with the
# locked requirements, as OUT/layer.tar to lie on the base. PYTHON is one of this machine with pip; its version is free.
set -euo pipefail
base=$1 requirements=$2 python=$3 out=$4
. "$(dirname "$0")/root.sh"

chroot "$root" python3 -m venv --without-pip /opt/headrace
site=$(chroot "$root" /opt/headrace/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
install_locked "$site" "$python" "$requirements"
chroot "$root" /opt/headrace/bin/python -m compileall -q "$site" # a pod's root may be read-only
tar --create --numeric-owner --owner=0 --group=0 --sort=name --directory "$root" --file "$out/layer.tar" ./opt/headrace
rm -rf "$root"
