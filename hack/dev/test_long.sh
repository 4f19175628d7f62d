#!/usr/bin/env bash
# test_long.sh BIN: the long tests, part by part; a part that passed at this commit isn't run again (delete
# build/long to run all). Each part stays under ten minutes.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=$1
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit-dirty
done_dir=build/long/$commit
mkdir -p "$done_dir"
failed=0
part() {
  local name=$1
  shift
  if [ -e "$done_dir/$name" ] && [[ $commit != *-dirty ]]; then
    echo "== $name: passed at $commit before"
    return
  fi
  echo "== $name"
  if "$@"; then touch "$done_dir/$name"; else echo "== $name: FAILED"; failed=1; fi
}
part properties env HEADRACE_EXAMPLES=10 "$bin/pytest" -q tests/property --timeout 1200
part fuzz-http1 env HEADRACE_EXAMPLES=15 "$bin/pytest" -q tests/integration/test_fuzz_http1.py --timeout 1200
part demo-chaos "$bin/headrace" demo --plain --duration 240 --chaos operator
for file in $(grep -l 'mark.long' tests/e2e/test_*.py); do # each brings up a cluster of its own
  name=$(basename "$file" .py)
  part "cluster-${name#test_}" "$bin/pytest" -q -m long "$file"
done
exit $failed
