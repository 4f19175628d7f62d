"""Operator processes against a real API server, each with an account of its own: the audit log tells them apart."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from support.checkout import ROOT
from support.cluster import Cluster, cluster_command

NAMESPACE = "ops"
TEAM = "inf"
ROLE = "headrace-operator-test"
# What the operator calls; the chart's roles say the same, and a test of theirs holds them against the audit log.
RULES: list[dict[str, Any]] = [
    {
        "apiGroups": ["headrace.dev"],
        "resources": ["inferenceengines", "routingpolicies"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["headrace.dev"],
        "resources": ["inferenceengines/status", "routingpolicies/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["get", "list", "create", "patch", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "create", "patch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "create", "update", "patch", "delete"],
    },
]


def role(rules: list[dict[str, Any]]) -> str:
    """A ClusterRole with these rules, as YAML."""
    manifest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": rules,
    }
    return str(yaml.safe_dump(manifest))


def prepare(cluster: Cluster) -> None:
    """Our types, the operators' namespace, and the role that all of them have."""
    crds = [f"--filename={path}" for path in sorted((ROOT / "crds").glob("*.yaml"))]
    cluster.kubectl("apply", "--server-side", *crds)
    cluster.established()
    for name in (NAMESPACE, TEAM):
        cluster.kubectl("create", "namespace", name)
    cluster.kubectl("apply", "--filename=-", stdin=role(RULES))


def clean(cluster: Cluster) -> None:
    """Take out what ``prepare`` and the operators put in; the types stay."""
    cluster.kubectl("delete", "clusterrolebinding", "--selector=headrace-test=live", "--ignore-not-found")
    cluster.kubectl("delete", "clusterrole", ROLE, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", NAMESPACE, TEAM, "--ignore-not-found")


class LiveOperator:
    """One process of ``headrace run`` in the cluster's network; ``name`` is its account and its pod's name.

    Those of one ``namespace`` stand for one Lease.
    """

    def __init__(self, cluster: Cluster, name: str, folder: Path, port: int, namespace: str = NAMESPACE) -> None:
        self.cluster = cluster
        self._namespace = namespace
        self.name = name
        self.folder = folder
        self._address = f"127.0.0.1:{port}"
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        account = f"{namespace}:{name}"
        cluster.kubectl("create", "serviceaccount", name, f"--namespace={namespace}")
        cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={ROLE}", f"--serviceaccount={account}")
        cluster.kubectl("label", "clusterrolebinding", name, "headrace-test=live")
        token = cluster.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=2h").stdout.strip()
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        self._kubeconfig = folder / f"{name}.kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(config))

    def start(self, *more: str) -> None:
        """Begin, or begin again."""
        environment = {**os.environ, "POD_NAME": self.name, "POD_NAMESPACE": self._namespace}
        program = [sys.executable, "-m", "headrace_cli.main", "run", "--metrics", self._address]
        command = cluster_command(self.cluster.name, "exec", *program, "--kubeconfig", str(self._kubeconfig), *more)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 60) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its own pages; 0 when it doesn't answer."""
        page = [
            "curl",
            "--silent",
            "--max-time",
            "10",
            "--write-out",
            "\n%{http_code}",
            f"http://{self._address}{path}",
        ]
        done = subprocess.run(
            cluster_command(self.cluster.name, "exec", *page), capture_output=True, text=True, timeout=60
        )
        text, _, code = done.stdout.rpartition("\n")
        return int(code or 0), text

    def leads(self) -> bool:
        return self.get("/readyz")[1].startswith("leading")

    def end(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(60)


def writes(cluster: Cluster, name: str) -> Iterator[dict[str, Any]]:
    """What the operator of this account wrote by the API server's audit log, oldest first."""
    done = subprocess.run(cluster_command(cluster.name, "audit"), capture_output=True, text=True, timeout=120)
    for line in done.stdout.splitlines():
        event = json.loads(line)
        ours = event["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:{name}"
        if ours and event["verb"] not in ("get", "list", "watch"):
            yield event
