#!/usr/bin/env bash
# stage.sh [NAME]: a test cluster with everything in it: types, operator, routers, simulated engines, the sample's policy.
# Again: builds and sends what an edit changed, and restarts what runs of it. STAGE_VALUES: further helm values files.
set -euo pipefail
name=${1:-stage}
cd "$(dirname "$0")/../.."
cluster() { hack/cluster/cluster.py --name "$name" "$@"; }
say() { echo "stage: $*" >&2; }
sample=manifests/samples/cluster
more=()
for values in ${STAGE_VALUES:-}; do more+=(--values "$values"); done

say "cluster $name"
cluster up >/dev/null
say "images"
built=$(cluster load operator router lab)
# A tag that now means another image restarts nothing by itself.
note=podAnnotations.headrace\\.dev/test-images=$(sha256sum <<<"$built" | cut -c 1-12)
say "the chart, and the sample"
cluster exec kubectl apply --filename $sample/namespace.yaml >&2 # routers' roles stand in it
# What stands already, from a half-done run or made by hand, is taken over.
cluster exec helm upgrade --install headrace manifests/charts/headrace --namespace headrace-system --create-namespace \
  --values $sample/values.yaml "${more[@]}" --set "operator.$note" --set "routerDefaults.$note" --take-ownership \
  --force-conflicts >/dev/null
cluster exec kubectl apply --kustomize $sample >&2
say "pods"
for place in inference headrace-system; do
  for deployment in $(cluster exec kubectl --namespace "$place" get deployments --output name); do
    cluster exec kubectl --namespace "$place" rollout status "$deployment" --timeout=90s >/dev/null
  done
done
say "policies"
cluster exec kubectl wait --for=condition=Ready routingpolicy --all --all-namespaces --timeout=120s >&2
say "try: hack/cluster/cluster.py --name $name exec kubectl -n inference get rpol,ieng"
say "     hack/cluster/cluster.py --name $name exec kubectl -n inference describe rpol chat"
say "done with it: hack/cluster/cluster.py --name $name down"
