"""A real Argo CD on a test cluster, without images: Redis, repository server and controller as processes beside it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command

NAMESPACE = "argocd"
BUILD_SECONDS = 2400
PART_OF = {"app.kubernetes.io/part-of": "argocd"}
EVERYTHING = [{"group": "*", "kind": "*"}]


def _object(kind: str, name: str, *, version: str = "v1", **content: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": PART_OF}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def settings() -> str:
    """What Argo CD needs in its namespace: our health checks in its ConfigMap, a project that allows everything."""
    ours = yaml.safe_load((ROOT / "manifests" / "gitops" / "argocd" / "argocd-cm.yaml").read_text())
    project = {
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "clusterResourceWhitelist": EVERYTHING,
    }
    return yaml.safe_dump_all(
        [
            ours,
            _object("ConfigMap", "argocd-rbac-cm"),
            # Without the key, later changes of argocd-cm are not picked up.
            _object("Secret", "argocd-secret", stringData={"server.secretkey": "only-for-tests"}),
            _object("AppProject", "default", version="argoproj.io/v1alpha1", spec=project),
        ]
    )


def free_ports(count: int) -> list[int]:
    """Ports that nothing here listens on; in a network of its own the cluster has nearly all of them."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class ArgoCd:
    """The running Argo CD; applications are plain data."""

    def __init__(self, cluster: Cluster, logs: Path) -> None:
        self.cluster = cluster
        self.logs = logs

    def apply(self, application: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(application))

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.cluster.get("application", name, f"--namespace={NAMESPACE}").get("status", {}))

    def refresh(self, name: str) -> None:
        """Make it look at the repository and the cluster at once."""
        now = "argocd.argoproj.io/refresh=normal"
        self.cluster.kubectl("annotate", "application", name, f"--namespace={NAMESPACE}", "--overwrite", now)

    def await_health(self, name: str, *, sync: str = "Synced", health: str, seconds: float = 120) -> dict[str, Any]:
        """Wait for an Application's states; returns its resources' health by (kind, name)."""

        def reached() -> bool:
            status = self.status(name)
            return (status.get("sync", {}).get("status"), status.get("health", {}).get("status")) == (sync, health)

        await_true(reached, f"{sync} and {health}", seconds)
        resources = self.status(name).get("resources", [])
        return {(each["kind"], each["name"]): each.get("health", {}) for each in resources}


def argocd_programs() -> Path:
    """The folder with Argo CD's programs, kustomize and CRDs; built if need be."""
    command = [sys.executable, str(ROOT / "hack" / "cluster" / "argo.py")]
    built = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=BUILD_SECONDS)
    return Path(built.stdout.strip())


@contextlib.contextmanager
def running_argocd(cluster: Cluster, folder: Path) -> Iterator[ArgoCd]:
    """Build if need be, install and start; all of it ends with the block."""
    programs = argocd_programs()
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("apply", "--server-side", "--kustomize", str(programs / "crds"))
    cluster.established()
    cluster.kubectl("apply", "--filename=-", stdin=settings())
    redis, repository, metrics, controller = free_ports(4)
    commands = {
        "redis": ["redis-server", "--bind", "127.0.0.1", "--port", str(redis), "--save", ""],
        "repo-server": [
            *("argocd-repo-server", "--redis", f"127.0.0.1:{redis}", "--disable-tls", "--address", "127.0.0.1"),
            *("--port", str(repository), "--metrics-port", str(metrics), "--revision-cache-expiration", "5s"),
        ],
        "controller": [
            *("argocd-application-controller", "--namespace", NAMESPACE, "--redis", f"127.0.0.1:{redis}"),
            *("--repo-server", f"127.0.0.1:{repository}", "--repo-server-plaintext", "--app-resync", "10"),
            *("--app-resync-jitter", "0", "--persist-resource-health", "--metrics-port", str(controller)),
        ],
    }
    with contextlib.ExitStack() as stack:
        for name, command in commands.items():
            stack.enter_context(_running(cluster, command, folder, name, programs))
        yield ArgoCd(cluster, folder)


def _environment(folder: Path, programs: Path) -> dict[str, str]:
    """Everything that Argo CD keeps in files, below one folder."""
    paths = {
        name: folder / name.lower()
        for name in (
            *("ARGOCD_TLS_DATA_PATH", "ARGOCD_SSH_DATA_PATH", "ARGOCD_GPG_DATA_PATH", "ARGOCD_GNUPGHOME"),
            *("ARGOCD_PLUGINSOCKFILEPATH", "HOME", "TMPDIR"),
        )
    }
    for path in paths.values():
        path.mkdir(exist_ok=True)
    (paths["ARGOCD_SSH_DATA_PATH"] / "ssh_known_hosts").touch()
    return {
        **os.environ,
        **{name: str(path) for name, path in paths.items()},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "ARGOCD_ASK_PASS_SOCK": str(folder / "ask-pass.sock"),
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_FAKE_IN_CLUSTER": "true",
        # The repositories are this test's own, whoever runs it.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


@contextlib.contextmanager
def _running(cluster: Cluster, command: list[str], folder: Path, name: str, programs: Path) -> Iterator[None]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            cluster_command(cluster.name, "exec", *command),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=_environment(folder, programs),
        )
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
