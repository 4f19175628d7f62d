#!/usr/bin/env bash
# go.sh PROGRAM OUT: build one static program into OUT/PROGRAM: kind, or one of the Go modules beside this folder.
set -euo pipefail
program=$1 out=$2
cd "$(dirname "$0")/.."
. ./versions.sh

command -v go >/dev/null || {
  echo "headrace: no go on PATH; the test cluster's programs are built with Go >= 1.24" >&2
  exit 3
}
export CGO_ENABLED=0
flags="-s -w"
case $program in
  kind)
    GOBIN=$out go install "sigs.k8s.io/kind@$KIND"
    exit
    ;;
  kubernetes) # kubeadm refuses to set up a cluster of unknown version
    minor=${KUBERNETES#v1.}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
      flags+=" -X $package.gitVersion=$KUBERNETES -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
      flags+=" -X $package.gitTreeState=clean -X $package.buildDate=1970-01-01T00:00:00Z"
    done
    ;;
esac
cd "$program"
go build -mod=readonly -buildvcs=false -ldflags "$flags" -o "$out/$program" .
