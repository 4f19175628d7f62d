"""Router processes against a real API server, with a service account's token and the least rights."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from headrace_api.table import RoutingTable
from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.router_table import table_bytes

NAMESPACE = "route-live"
ACCOUNT = "router"
SIMULATED = ROOT / "manifests" / "samples" / "cluster" / "simulated-engines.yaml"
# What a router asks for; the chart's role says the same, by the names of its tables.
RULES: dict[str, list[dict[str, Any]]] = {
    "tables": [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["headrace-chat-fe-a"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["headrace-heartbeat"],
            "verbs": ["get"],
        },
    ],
    "services": [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},
    ],
}


def role(name: str) -> list[dict[str, Any]]:
    """A Role of RULES and its binding to the routers' account."""
    api = "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": NAMESPACE}
    return [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": RULES[name]},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    ]


def engines(replicas: int) -> list[dict[str, Any]]:
    """Simulated engine pods and their Service, called sim."""
    text = (
        SIMULATED.read_text().replace("h200-eastus", "sim").replace("namespace: inference", f"namespace: {NAMESPACE}")
    )
    found = [each for each in yaml.safe_load_all(text) if each["metadata"]["name"] in ("sim", "simulated-engines")]
    for each in found:
        if each["kind"] == "Deployment":
            each["spec"]["replicas"] = replicas
    return found


def apply(cluster: Cluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))


def publish(cluster: Cluster, table: RoutingTable) -> None:
    """A table's ConfigMap as the operator would make it."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "headrace-chat-fe-a", "namespace": NAMESPACE},
        "data": {"table.json": table_bytes(table).decode()},
    }
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump(manifest))


class Inside:
    """A program of the tests that runs in the cluster's network."""

    def __init__(self, cluster: Cluster, *command: str, stdout: Any = subprocess.PIPE, stderr: Any = None) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
        self.process = subprocess.Popen(
            cluster_command(cluster.name, "exec", *command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, seconds: float = 120) -> str:
        """Its output after a SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, said
        return said


class LiveRouter:
    """One ``headrace router`` on ports of its own."""

    def __init__(self, cluster: Cluster, folder: Path, port: int, *wrapped: str) -> None:
        self.cluster = cluster
        self.port = port
        self.token = folder / "token"
        self.fallback = folder / "mounted"
        self._log = folder / f"{port}.log"
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        place = config["clusters"][0]["cluster"]
        ca = folder / "ca.crt"
        ca.write_bytes(base64.b64decode(place["certificate-authority-data"]))
        made = cluster.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}", "--duration=2h")
        self.token.write_text(made.stdout)
        command = [
            *wrapped,
            *(sys.executable, "-m", "headrace_cli.main", "router", "--frontend", "fe-a"),
            *("--configmap", f"{NAMESPACE}/headrace-chat-fe-a", "--fallback-dir", str(self.fallback)),
            *("--api", place["server"], "--api-token", str(self.token), "--api-ca", str(ca)),
            *("--listen", f"[::]:{port}", "--admin", f"[::]:{port + 1}", "--drain-delay", "1", "--grace", "20"),
        ]
        self._log_file = self._log.open("w")
        self.inside = Inside(cluster, *command, stdout=self._log_file, stderr=self._log_file)

    def end(self) -> int:
        """Its exit code after a SIGTERM."""
        self.inside.process.send_signal(signal.SIGTERM)
        return self.inside.process.wait(60)

    def close(self) -> None:
        self.inside.__exit__()
        self._log_file.close()

    def log(self) -> str:
        return self._log.read_text()

    def page(self, path: str) -> str:
        """One of its admin pages, empty while it doesn't answer."""
        address = f"http://127.0.0.1:{self.port + 1}{path}"
        return self.cluster.execute("curl", "--silent", "--max-time", "10", address, check=False).stdout

    def detail(self) -> dict[str, Any]:
        """/readyz."""
        page = self.page("/readyz")
        found: dict[str, Any] = json.loads(page) if page else {"ready": False, "tables": [{}]}
        return found

    def table(self) -> dict[str, Any]:
        found: dict[str, Any] = self.detail()["tables"][0]
        return found

    def metric(self, name: str) -> float:
        families = text_string_to_metric_families(self.page("/metrics"))
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def answers(self) -> bool:
        """Whether a request is served now."""
        body = json.dumps({"model": "llama-3.1-70b", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]})
        address = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        asked = ["curl", "--silent", "--max-time", "30", "--output", "/dev/null", "--write-out", "%{http_code}"]
        said = self.cluster.execute(*asked, "--json", body, address, check=False)
        return said.stdout == "200"

    def until(self, condition: Any, what: str, seconds: float = 180) -> None:
        try:
            await_true(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.page('/readyz')}\n{self.log()[-3000:]}") from error

    def serves(self) -> Self:
        self.until(lambda: self.detail()["ready"], "the router is ready")
        return self
