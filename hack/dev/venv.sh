#!/usr/bin/env bash
# venv.sh VENV REQUIREMENTS: a virtual environment from locked, hashed requirements, plus this checkout, editable.
# System packages come through apt when we are root; otherwise a clear word says what is missing.
set -euo pipefail
venv=$1 requirements=$2
cd "$(dirname "$0")/../.."

python=${PYTHON:-}
for candidate in python3.13 python3.12 python3.11 python3; do
  [ -z "$python" ] && command -v "$candidate" >/dev/null &&
    "$candidate" 2>/dev/null -c 'import sys; sys.exit(sys.version_info < (3, 11))' && python=$candidate
done
if [ -z "$python" ]; then
  echo "headrace: no Python >= 3.11 on PATH; install one (Debian: python3 python3-venv) or set PYTHON" >&2
  exit 3
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv >/dev/null
  else
    echo "headrace: $python has no ensurepip; install python3-venv, or run as root" >&2
    exit 3
  fi
fi

echo "headrace: $venv from $requirements" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/pip" --quiet --disable-pip-version-check install --require-hashes -r "$requirements"
"$venv/bin/pip" --quiet --disable-pip-version-check install --no-deps --no-build-isolation --no-index -e .
