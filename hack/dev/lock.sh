#!/usr/bin/env bash
# Writes requirements/*.txt: versions and hashes for every platform and Python we support, no addresses. dev.txt holds all
# of them, and the others are held to it: images run, and are compiled with, the versions that tests ran with.
set -euo pipefail
cd "$(dirname "$0")/../.."
. hack/dev/uv.sh
lock() { # NAME WHAT…
  local name=$1
  shift
  "$uv" pip compile "$@" --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
    --no-header --no-annotate --quiet -o "requirements/$name.txt"
}
held() { lock "$@" --constraint requirements/dev.txt; }
lock dev pyproject.toml --extra all --group build --group dev
held all pyproject.toml --extra all --group build
held router pyproject.toml --extra router --extra tracing
held operator pyproject.toml --extra operator
# What builds a wheel, and what compiles one, without the distribution's own dependencies.
held build --group build
held compile --group compile
