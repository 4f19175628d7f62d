#!/usr/bin/env bash
# argocd.sh OUT: Argo CD of the release that its module pins, and the kustomize that it calls, into OUT.
set -euo pipefail
out=$1
cd "$(dirname "$0")/../argocd"
command -v go >/dev/null || {
  echo "headrace: no go on PATH; Argo CD is built with Go >= 1.25" >&2
  exit 3
}
export CGO_ENABLED=0
GOBIN=$out go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
version=$(go list -mod=readonly -m -f '{{.Version}}' github.com/argoproj/argo-cd/v3)
nice -n 19 go build -mod=readonly -buildvcs=false -o "$out/argocd" \
  -ldflags "-s -w -X github.com/argoproj/argo-cd/v3/common.version=${version#v}" .
for name in argocd-application-controller argocd-repo-server argocd-git-ask-pass; do
  ln -s argocd "$out/$name"
done
cp -r "$(go list -mod=readonly -m -f '{{.Dir}}' github.com/argoproj/argo-cd/v3)/manifests/crds" "$out/crds"
chmod -R u+w "$out/crds"
