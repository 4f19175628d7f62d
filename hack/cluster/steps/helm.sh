#!/usr/bin/env bash
# helm.sh OUT: build helm, of the release that ../helm/go.mod pins, into OUT/helm. It shares Kubernetes' libraries with the
# cluster's programs, so that little is downloaded twice.
set -euo pipefail
out=$1
cd "$(dirname "$0")/.."
. ./versions.sh

command -v go >/dev/null || {
  echo "headrace: no go on PATH; helm is built with Go >= 1.24" >&2
  exit 3
}
minor=${KUBERNETES#v1.} minor=${minor%%.*}
flags="-s -w"
# What a chart's kubeVersion is compared with where no cluster is asked.
for rules in pkg/chart/common pkg/chart/v2/lint/rules; do
  flags+=" -X helm.sh/helm/v4/$rules.k8sVersionMajor=1 -X helm.sh/helm/v4/$rules.k8sVersionMinor=$minor"
done
cd helm
CGO_ENABLED=0 go build -mod=readonly -buildvcs=false -ldflags "$flags" -o "$out/helm" helm.sh/helm/v4/cmd/helm
