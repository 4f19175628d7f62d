#!/usr/bin/env bash
# demo.sh: the whole story on a real Kubernetes, told line by line: install, requests, an engine that shrinks, weights that
# follow and say why. Its cluster is its own and goes with it. Exit: 0, or 1 if a request failed that need not have.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=demo-$$
sample=manifests/samples/cluster
cluster() { hack/cluster/cluster.py --name "$name" "$@"; }
kubectl() { cluster exec kubectl --namespace inference "$@"; }
say() { printf '\n\033[1m[%3d s] %s\033[0m\n' "$SECONDS" "$*"; }
shown() { # the command as a person would type it, and what it says
  printf '$ kubectl -n inference %s\n' "$*"
  kubectl "$@"
}
weights() { kubectl get routingpolicy chat --output 'jsonpath={range .status.weights[*]}  {}{"\n"}{end}'; }
list() { kubectl get routingpolicy chat --output "jsonpath={range .status.$1[*]}  {}{\"\n\"}{end}"; }
weight() { # WEIGHT of an engine at a front-end, in percent; 0 if it has none
  weights | sed -n "s/^  $1: .*\b$2 \([0-9.]*\) %.*/\1/p" | grep . || echo 0
}
await() { # SECONDS ENGINE FRONT-END TEST NUMBER: until its weight passes the test
  local end=$((SECONDS + $1))
  until awk "BEGIN {exit !($(weight "$3" "$2") $4 $5)}"; do
    if [ $SECONDS -ge $end ]; then
      echo "demo: the weight of $2 at $3 is not $4 $5 % after $1 s" >&2
      kubectl describe routingpolicy chat >&2
      exit 1
    fi
    sleep 1
  done
}
take_down() {
  say "taking the cluster down"
  cluster down
}

say "a Kubernetes of its own"
cluster up --owner $$ >/dev/null
trap take_down EXIT
say "images, the chart, four simulated engines of seven pods, two front-ends of two routers, two operators"
hack/cluster/stage.sh "$name" 2>&1 | grep -v -e unchanged -e '^stage: \(try\|  \|done\)' | sed 's/^/  /'

say "what stands"
shown get routingpolicies,inferenceengines
shown get pods --all-namespaces --selector 'app.kubernetes.io/name in (headrace, simulated-engine)'

say "requests: 40 a second in America, 25 in Europe"
kubectl apply --filename $sample/load.yaml >/dev/null
await 90 b200-westus2 fe-us-east '>' 5
sleep 8
say "the front-ends' own counts are the demand now, and each engine has its part"
shown get routingpolicies
weights
full=$(weight fe-us-east h200-eastus)

say "h200-eastus shrinks from three replicas to one"
shown scale deployment/h200-eastus --replicas=1
await 90 h200-eastus fe-us-east '<' "$full - 15"
sleep 4
say "its part went to the others; why, says the policy itself"
shown describe routingpolicy chat | sed -n -e '1p' -e '/^  History:/,/^  Observed/p' -e '/^  Weights:/,$p' | cut -c 1-180

say "back to three"
kubectl scale deployment/h200-eastus --replicas=3 >/dev/null
await 90 h200-eastus fe-us-east '>' "$full - 10"
weights

say "what became of the requests"
kubectl wait --for=jsonpath='{.status.ready}'=0 job/load --timeout=150s >/dev/null
result=$(kubectl logs job/load | tail -n 1)
python3 - "$result" <<'END'
import json
import sys

result = json.loads(sys.argv[1])
counts = result["counts"]
for name, frontend in result["frontends"].items():
    ttft, whole = frontend["ttft"], frontend["endToEnd"]
    shares = ", ".join(f"{engine.split('/')[-1]} {number}" for engine, number in frontend["engines"].items())
    print(f"  {name}: {frontend['counts']['done']} done; first token p50 {ttft['p50']} s, all p50 {whole['p50']} s; by {shares}")
for failure in result["failures"]:
    print(f"  {failure}")
print(f"  {counts['requests']} requests: {counts['done']} done, {counts['shed']} refused, {counts['failed']} failed")
sys.exit(1 if counts["failed"] or counts["notSent"] else 0)
END
