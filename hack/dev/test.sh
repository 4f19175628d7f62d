#!/usr/bin/env bash
# test.sh BIN: what `make test` runs after `make check`, in two streams beside each other: tests in clusters, which mostly
# wait, and those on this machine alone, whose output follows when both have ended. Exit: 1 if either failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=$1
alone=(tests/integration tests/e2e/test_documentation.py tests/e2e/test_fresh_demo.py)
log=$(mktemp)
end() { # Ctrl-C, or a kill: what runs in the background has a process group of its own
  kill -- "-$stream" 2>/dev/null
  rm -f "$log"
}
set -m
"$bin/pytest" -q --durations=10 "${alone[@]}" >"$log" 2>&1 </dev/null &
stream=$!
set +m
trap end EXIT
failed=0
"$bin/pytest" -q --durations=10 tests/e2e "${alone[@]/#/--ignore=}" || failed=1
wait "$stream" || failed=1
cat "$log"
exit $failed
