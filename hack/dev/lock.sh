#!/usr/bin/env bash
# Writes requirements/*.txt: versions and hashes for every platform and Python we support, no addresses.
set -euo pipefail
cd "$(dirname "$0")/../.."
. hack/dev/uv.sh
compile() { "$uv" pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet "$@"; }
compile --extra router --extra tracing -o requirements/router.txt
compile --extra operator -o requirements/operator.txt
compile --extra all --group build -o requirements/all.txt
compile --extra all --group build --group dev -o requirements/dev.txt
# What builds a wheel, and what compiles one, without the distribution's own dependencies.
for group in build compile; do
  "$uv" pip compile --group "$group" --universal --python-version 3.11 --generate-hashes --constraint requirements/dev.txt \
    --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet -o "requirements/$group.txt"
done
