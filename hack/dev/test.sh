#!/usr/bin/env bash
# test.sh BIN: what `make test` runs after `make check`, in two streams beside each other. One is clusters, whose tests
# mostly wait: the product staged in one, then an empty one. The other is this machine alone: integration tests, every
# command of the documentation, the demo; its output follows when both have ended. Exit: 1 if anything failed.
#
# Routers run compiled there, as images have them (docs/adr/0021), and their unit and property tests are run once more
# in that form; only tests that put stand-ins in the place of compiled parts run the source.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=$1
in=tests/e2e
# In this order: calm ones before those that stir it up, what was asked of the API server in all of it at the end.
staged=()
for name in sample policies scale changes high_availability prometheus_installed what_was_asked; do
  staged+=("$in/test_$name.py")
done
typed=("$in/test_documentation.py" "$in/test_fresh_demo.py")
tests() { "$bin/pytest" -q --durations=10 "$@"; }
alone() {
  local failed=0 form
  tests --form source -m "stand_ins and not long" tests/integration || failed=1
  form=$("$bin/python" hack/compile/compiled.py) || return 1
  PYTHONPATH=$form tests --form compiled tests/unit/{http1,router_core,router_io,router_proxy} \
    tests/property/{http1,router_core,router_proxy} tests/integration || failed=1
  tests "${typed[@]}" || failed=1
  return $failed
}
log=$(mktemp)
trap 'kill -- "-$stream" 2>/dev/null; rm -f "$log"' EXIT
set -m # a process group of its own, so that all of it ends with this script
alone >"$log" 2>&1 </dev/null &
stream=$!
set +m
failed=0
tests "${staged[@]}" || failed=1
tests $in "${staged[@]/#/--ignore=}" "${typed[@]/#/--ignore=}" || failed=1
wait "$stream" || failed=1
cat "$log"
exit $failed
