"""What is done to a running cluster's node: its API server stopped, its audit log read, images given to it."""

# ruff: noqa: S603 (runs this machine's own tools, found on PATH)
from __future__ import annotations

import subprocess
from pathlib import Path

import image
import kind
from record import Record

MANIFEST, MOVED_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/kube-apiserver.yaml"
KILL_ALL = "while pkill -KILL -x kube-apiserver; do sleep 0.2; done"  # the kubelet may be just restarting it
API_SCRIPTS = {
    "stop": f"[ ! -e {MANIFEST} ] || mv {MANIFEST} {MOVED_MANIFEST}; sleep 1; {KILL_ALL}",
    "start": f"[ -e {MANIFEST} ] || mv {MOVED_MANIFEST} {MANIFEST}",
    "pause": "pkill -STOP -x kube-apiserver",
    "resume": "pkill -CONT -x kube-apiserver",
}


def internal_kubeconfig(cluster: Record) -> str:
    """A kubeconfig that works in pods of a cluster on the same Docker: it names the node's address."""
    text = kind.output(cluster, ["kind", "get", "kubeconfig", "--internal", "--name", cluster.kind_name])
    return text.replace(f"https://{cluster.node}:", f"https://{kind.address(cluster)}:")


def audit(cluster: Record) -> list[str]:
    """Before which command the API server's audit log is read, oldest first: one JSON object a line."""
    ordered = f"ls -tr {kind.AUDIT_LOGS}/audit*.log 2>/dev/null | xargs -r cat"
    return [*kind.inside(cluster), "docker", "exec", cluster.node, "sh", "-c", ordered]


def api(cluster: Record, what: str) -> None:
    """Stop or start the API server, or pause and resume it: a paused one takes connections and answers nothing.

    A pause of more than 80 s is ended by the kubelet, which then starts a new one. Returns when it is so.
    """
    kind.run(cluster, ["docker", "exec", cluster.node, "sh", "-c", API_SCRIPTS[what]])
    if what in {"start", "resume"}:
        kind.await_success(cluster, ["kubectl", "get", "--raw", "/readyz"], "the API server is not ready again")


def give(cluster: Record, made: image.Image) -> list[Path]:
    """Give the nodes an image; only layers that they don't have are sent. Returns those."""
    sent: dict[Path, None] = {}
    for node in kind.output(cluster, ["kind", "get", "nodes", "--name", cluster.kind_name]).split():
        control = ["docker", "exec", "--interactive", node, "ctr", "--namespace=k8s.io"]
        known = set(kind.output(cluster, [*control, "content", "ls", "--quiet"]).split())
        with subprocess.Popen(
            [*kind.inside(cluster), *control, "images", "import", "--all-platforms", "--snapshotter=overlayfs", "-"],
            env=kind.environment(cluster),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as importing:
            assert importing.stdin and importing.stdout
            try:
                sent |= dict.fromkeys(image.write_missing(importing.stdin, made, known))
                importing.stdin.close()
            except BrokenPipeError:
                pass  # it ended early, and says why
            said = importing.stdout.read().decode(errors="replace")
        if importing.returncode != 0:
            raise RuntimeError(f"node {node} did not take {made.name}:\n{said}")
    return list(sent)
