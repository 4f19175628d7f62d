"""kind, on the machine's Docker or on our own: what differs is the node image and where commands run."""

# ruff: noqa: S603 (runs this machine's own tools, found on PATH)
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import parts
import private
from record import Record

READY_SECONDS = 300
ENTRYPOINT = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
POD_NETWORK, SERVICE_NETWORK = "10.244.0.0/24", "10.96.0.0/16"
AUDIT_POLICY, AUDIT_LOGS = "/etc/kubernetes/audit-policy.yaml", "/var/log/kubernetes"

CONFIGURATION = f"""\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking: {{ipFamily: ipv4}}
nodes:
- role: control-plane
  extraMounts:
  - {{hostPath: "%s", containerPath: {AUDIT_POLICY}, readOnly: true}}
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  apiServer:
    extraArgs:
      audit-policy-file: {AUDIT_POLICY}
      audit-log-path: {AUDIT_LOGS}/audit.log
      audit-log-maxsize: "50"
      audit-log-maxbackup: "10"
    extraVolumes:
    - {{name: audit-policy, hostPath: {AUDIT_POLICY}, mountPath: {AUDIT_POLICY}, readOnly: true, pathType: File}}
    - {{name: audit-logs, hostPath: {AUDIT_LOGS}, mountPath: {AUDIT_LOGS}, pathType: DirectoryOrCreate}}
"""
# Our node image has the control plane's images under this name.
OUR_IMAGES = """\
- |
  kind: ClusterConfiguration
  imageRepository: %s
"""


def official_image() -> str | None:
    """The official node image if the machine's Docker answers and has it or can pull it; else None."""
    image = parts.versions()["NODE_IMAGE"]
    if not shutil.which("docker") or not _succeeds(["docker", "info"], 20):
        return None
    if _succeeds(["docker", "image", "inspect", image], 20) or _succeeds(["docker", "pull", "--quiet", image], 600):
        return image
    return None


def import_node(cluster: Record, made_of: parts.Parts) -> str:
    """Bring our node image into our Docker; returns its name."""
    image = f"headrace/node:{made_of.node_key}"
    changes = ["--change", ENTRYPOINT, "--change", "ENV container=docker"]  # so that systemd knows
    run(cluster, ["docker", "import", *changes, str(made_of.node_root), image])
    return image


def create(cluster: Record, kind_program: Path, image: str, kubectl: Path | None) -> None:
    """Make the cluster and wait until pods can be created and names resolve."""
    programs = cluster.folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "kind").symlink_to(kind_program)
    policy = cluster.folder / "audit-policy.yaml"  # a copy: what a node mounts must not change with the checkout
    shutil.copyfile(parts.HERE / "audit-policy.yaml", policy)
    configuration = CONFIGURATION % policy
    if cluster.how == "private":
        configuration += OUR_IMAGES % parts.versions()["IMAGE_REPOSITORY"]
    (cluster.folder / "kind.yaml").write_text(configuration)
    options = ["--config", str(cluster.folder / "kind.yaml"), "--kubeconfig", str(cluster.kubeconfig)]
    run(
        cluster,
        ["kind", "create", "cluster", "--name", cluster.kind_name, "--image", image, "--wait", "180s", *options],
    )
    if kubectl:
        (programs / "kubectl").symlink_to(kubectl)
    else:  # the node's own is of the cluster's version
        run(cluster, ["docker", "cp", "--follow-link", f"{cluster.node}:/usr/bin/kubectl", str(programs / "kubectl")])
    # One of the two CoreDNS pods is enough: one that looked for the API before kube-proxy was done is 30 s late.
    system, limit = "--namespace=kube-system", f"--timeout={READY_SECONDS}s"
    run(cluster, ["kubectl", system, "rollout", "status", "daemonset/kube-proxy", limit])
    run(cluster, ["kubectl", system, "wait", "--for=condition=Available", "deployment/coredns", limit])
    account = ["kubectl", "get", "serviceaccount", "default"]
    await_success(cluster, account, "the cluster's controllers made no default service account")
    if cluster.how == "private" and not cluster.beside:
        for network in (POD_NETWORK, SERVICE_NETWORK):
            run(cluster, ["ip", "route", "add", network, "via", address(cluster)])


def address(cluster: Record) -> str:
    """The node's address, at which pods of a cluster on the same Docker reach this one's API and NodePorts."""
    shown = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return output(cluster, ["docker", "inspect", "--format", shown, cluster.node]).strip()


def load(cluster: Record, image: str) -> None:
    """Give the nodes an image: an archive's path, or a name that Docker knows."""
    what = "image-archive" if Path(image).is_file() else "docker-image"
    run(cluster, ["kind", "load", what, image, "--name", cluster.kind_name])


def delete(cluster: Record) -> None:
    """Delete a cluster on the machine's Docker; one whose making never came so far is not there to delete."""
    if (cluster.folder / "bin" / "kind").exists():
        run(cluster, ["kind", "delete", "cluster", "--name", cluster.kind_name])


def environment(cluster: Record) -> dict[str, str]:
    """The variables of a command that runs for the cluster."""
    return {
        **os.environ,
        **(private.environment(cluster) if cluster.how == "private" else {}),
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{cluster.folder / 'bin'}:{os.environ['PATH']}",
        "KIND_EXPERIMENTAL_PROVIDER": "docker",
    }


def inside(cluster: Record) -> list[str]:
    """What to put before a command so that it runs where the cluster's addresses mean the cluster."""
    return private.inside(cluster) if cluster.how == "private" else []


def run(cluster: Record, command: list[str]) -> None:
    """Run a command for the cluster; what it says is shown only if it fails."""
    output(cluster, command)


def output(cluster: Record, command: list[str]) -> str:
    """What a command for the cluster prints; what it complains of is shown only if it fails."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        done = subprocess.run(
            [*inside(cluster), *command],
            env=environment(cluster),
            stdout=said,
            stderr=complained,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        said.seek(0)
        text = said.read().decode(errors="replace")
        if done.returncode != 0:
            complained.seek(0)
            text += complained.read().decode(errors="replace")
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{text}")
        return text


def await_success(cluster: Record, command: list[str], otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _succeeds([*inside(cluster), *command], 20, environment(cluster)):
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.2)


def _succeeds(command: list[str], seconds: float, variables: dict[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
