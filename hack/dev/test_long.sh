#!/usr/bin/env bash
# test_long.sh BIN: the long tests, part by part; a part that passed at this commit isn't run again (delete build/long to
# run all). Each part stays under ten minutes but for three that are long by what they claim: ten calm minutes and a
# quarter of an hour of chaos, which pass in the background beside the others, and a thousand engines for ten quiet and
# ten busy minutes, alone at the end.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=$1
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit-dirty
done_dir=build/long/$commit
mkdir -p "$done_dir"
failed=0
passed_before() {
  [ -e "$done_dir/$1" ] && [[ $commit != *-dirty ]] && echo "== $1: passed at $commit before"
}
part() { # NAME COMMAND…
  local name=$1 began=$SECONDS
  shift
  passed_before "$name" && return
  echo "== $name"
  if "$@"; then
    touch "$done_dir/$name"
    echo "== $name: passed after $((SECONDS - began)) s"
  else
    echo "== $name: FAILED after $((SECONDS - began)) s"
    failed=1
  fi
}
beside() { # NAME COMMAND…: in the background; awaited before the last part
  local name=$1
  passed_before "$name" && return
  echo "== $name: begins in the background ($done_dir/$name.log)"
  set -m # a process group of its own, so that all of it ends with this script
  part "$@" >"$done_dir/$name.log" 2>&1 </dev/null &
  set +m
  asides[$!]=$name
}
cluster() { # MODULE… [OPTION…]: the long tests of these modules of tests/e2e, which share clusters
  local files=()
  while [ $# -gt 0 ] && [[ $1 != -* ]]; do
    files+=("tests/e2e/test_$1.py")
    shift
  done
  "$bin/pytest" -q -m long --durations=10 "${files[@]}" "$@"
}
compiled() { # COMMAND…: with the router compiled, as images have it
  local form
  form=$("$bin/python" hack/compile/compiled.py) && PYTHONPATH=$form "$@"
}
calm=ten_calm_minutes
declare -A asides=()
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'for each in "${!asides[@]}"; do kill -- "-$each" 2>/dev/null; done' EXIT
chaos=tests/integration/router/test_chaos.py
beside chaos compiled "$bin/pytest" -q --form compiled -m long -k quarter $chaos
beside cluster-calm cluster prometheus_installed -k $calm
part properties env HEADRACE_EXAMPLES=10 "$bin/pytest" -q tests/property --timeout 1200
fuzz=tests/integration/test_fuzz_http1.py
part fuzz env HEADRACE_EXAMPLES=10 "$bin/pytest" -q $fuzz --timeout 1200
part fuzz-compiled compiled env HEADRACE_EXAMPLES=10 "$bin/pytest" -q --form compiled $fuzz --timeout 1200
part properties-compiled compiled env HEADRACE_EXAMPLES=10 "$bin/pytest" -q --form compiled \
  tests/property/{http1,router_core,router_proxy} --timeout 1200
part both-ways compiled env HEADRACE_EXAMPLES=16 "$bin/pytest" -q --form compiled \
  tests/integration/router/test_both_ways.py --timeout 1200
part processes compiled "$bin/pytest" -q --form compiled -m long -k "five or rolled" $chaos \
  tests/integration/router/test_rolled_under_load.py
part demo-chaos "$bin/headrace" demo --plain --duration 240 --chaos operator
part cluster-availability cluster high_availability
part cluster-prometheus cluster prometheus_installed prometheus_live -k "not $calm"
part cluster-stage cluster sample demo_cluster
part cluster-operator cluster operator_live
part cluster-writes cluster publisher_live router_live access_live
part cluster-install cluster install
part cluster-tenants cluster namespaces another_cluster
part cluster-itself cluster cluster
part cluster-gitops cluster gitops_argocd
for each in "${!asides[@]}"; do
  wait "$each"
  cat "$done_dir/${asides[$each]}.log"
  [ -e "$done_dir/${asides[$each]}" ] || failed=1
  unset "asides[$each]"
done
part cluster-scale cluster scale
exit $failed
