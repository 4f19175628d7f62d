"""Installations of the chart beside each other in a cluster of the tests, and tenants' namespaces with an engine."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.checkout import ROOT
from support.cluster import Cluster, cluster_command
from support.helm import CHART
from support.stage import SAMPLE

MODEL = "llama-3.1-70b"
ENGINE = "h200-eastus"
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}}
IMAGE = {"registry": "localhost/headrace", "tag": "test"}
QUICK = {"tick": "2s", "scrape": {"interval": "2s", "timeout": "1s"}}
TENANT = "headrace-test=tenant"
ROUTER = {"policies": ["team-a/chat"], "replicas": 1, "graceSeconds": 5, "resources": {"requests": {"cpu": "10m"}}}
CRDS = [f"--filename={path}" for path in sorted((ROOT / "crds").glob("*.yaml"))]


class Installation:
    """One release of the chart in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str, release: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.release = release
        self.name = release if "headrace" in release else f"{release}-headrace"
        self.account = f"{namespace}:{self.name}-operator"

    def install(self, *, check: bool = True, wait: bool = True, config: Mapping[str, Any] = {}, **values: Any) -> str:
        """Install or upgrade it; the types and the roles of users are somebody else's. Gives what helm complains of."""
        operator = {"replicas": 1, "resources": SMALL, "config": {**QUICK, **config}} | values.pop("operator", {})
        given = {
            "image": IMAGE,
            "crds": {"install": False},
            "rbac": {"aggregate": False},
            "operator": operator,
            **values,
        }
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": LABELS}}
        self.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(space))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(given, file)
            file.flush()
            words = ["upgrade", "--install", self.release, str(CHART), f"--namespace={self.namespace}"]
            done = self.cluster.execute("helm", *words, f"--values={file.name}", check=False)
        assert done.returncode == 0 or not check, done.stderr
        if done.returncode == 0 and wait and operator.get("enabled", True):
            self.rolled_out(f"{self.name}-operator")
        return done.stderr

    def rolled_out(self, deployment: str) -> None:
        self.cluster.kubectl(
            "rollout", "status", f"deployment/{deployment}", f"--namespace={self.namespace}", "--timeout=240s"
        )

    def uninstall(self) -> None:
        self.cluster.execute("helm", "uninstall", self.release, f"--namespace={self.namespace}", check=False)

    def restart(self, *, wait: bool = True) -> None:
        """New pods, which lead in a new term."""
        self.cluster.kubectl("rollout", "restart", f"deployment/{self.name}-operator", f"--namespace={self.namespace}")
        if wait:
            self.rolled_out(f"{self.name}-operator")

    def scale(self, replicas: int) -> None:
        """Let so many pods of its operator run."""
        words = "scale", f"deployment/{self.name}-operator", f"--namespace={self.namespace}"
        self.cluster.kubectl(*words, f"--replicas={replicas}", "--timeout=60s")

    def logs(self, component: str = "operator") -> str:
        chosen = f"--selector=app.kubernetes.io/component={component}", f"--namespace={self.namespace}"
        return self.cluster.kubectl("logs", *chosen, "--tail=-1", check=False).stdout

    def page(self, deployment: str, port: int, path: str = "/metrics") -> str:
        """One of a pod's own pages, as the pod itself sees it."""
        reading = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}{path}').read().decode())"
        return self.inside(deployment, reading)

    def inside(self, deployment: str, program: str) -> str:
        """What a few lines of Python say in one of its pods."""
        python = ["--", "/opt/headrace/bin/python", "-c", program]
        chosen = f"--namespace={self.namespace}", f"deployment/{deployment}"
        return self.cluster.kubectl("exec", *chosen, *python).stdout

    def can(self, account: str, verb: str, resource: str, *where: str) -> bool:
        """Whether a service account of this installation may do that, by the API server."""
        who = f"--as=system:serviceaccount:{self.namespace}:{account}"
        done = self.cluster.kubectl("auth", "can-i", verb, resource, who, *where, check=False)
        return done.stdout.strip() == "yes"

    def rights(self, account: str, namespace: str) -> set[str]:
        """The resources that a service account of this installation may do anything to there, by the API server."""
        who = f"--as=system:serviceaccount:{self.namespace}:{account}"
        listed = self.cluster.kubectl("auth", "can-i", "--list", who, f"--namespace={namespace}", "--no-headers").stdout
        return {line.split()[0] for line in listed.splitlines() if line and not line.startswith(" ")}

    def writes(self, since: str = "") -> list[tuple[str, str, str, int]]:
        """(verb, namespace, "resource/name", code) of what its operator wrote, its leader's Lease apart."""
        found = []
        for line in self.cluster.audit().splitlines():
            one = json.loads(line)
            where = one.get("objectRef") or {}
            ours = one["user"].get("username") == f"system:serviceaccount:{self.account}"
            if not ours or one["verb"] in ("get", "list", "watch") or one["requestReceivedTimestamp"] < since:
                continue
            if where.get("name") != "headrace-operator" and where.get("resource") != "selfsubjectaccessreviews":
                what = f"{where.get('resource')}/{where.get('name', '')}"
                code = one.get("responseStatus", {}).get("code", 0)
                found.append((one["verb"], where.get("namespace", ""), what, code))
        return found


LABELS = dict([TENANT.split("=")])


def manifests(
    namespace: str, *, frontend: str, publish: Mapping[str, str] = {}, urls: str = ""
) -> list[dict[str, Any]]:
    """A tenant's namespace, one simulated engine with its Service, and the policy ``chat`` for one front-end."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": LABELS}}
    simulated = [one for one in documents("simulated-engines.yaml") if one["metadata"]["name"] == ENGINE]
    settings = next(one for one in documents("simulated-engines.yaml") if one["kind"] == "ConfigMap")
    for one in simulated:
        if one["kind"] == "Deployment":
            one["spec"]["replicas"] = 1
    engine = next(one for one in documents("engines.yaml") if one["metadata"]["name"] == ENGINE)
    if urls:
        engine["spec"]["endpoints"] = {"urls": [urls]}
        engine["spec"]["location"]["cluster"] = "here"
    policy = documents("policy.yaml")[0]
    chosen = {**policy["spec"]["frontends"][0], "name": frontend}
    chosen["demand"] = {**chosen["demand"], "requestsPerSecond": 10}  # of 27 that one replica does: nothing is refused
    if publish:
        chosen["publish"] = dict(publish)
    if urls:
        chosen["location"]["cluster"] = "elsewhere"
    policy["spec"]["frontends"] = [chosen]
    found = [space, settings, *simulated, engine, policy]
    for one in found[1:]:
        one["metadata"]["namespace"] = namespace
    return found


def documents(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((Path(SAMPLE) / name).read_text()) if one]


def apply(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))


def table(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.get("configmap", name, f"--namespace={namespace}")["data"]["table.json"])
    return found


def status(cluster: Cluster, kind: str, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(kind, name, f"--namespace={namespace}").get("status", {})
    return found


def condition(cluster: Cluster, kind: str, namespace: str, name: str, of: str) -> dict[str, str]:
    conditions = status(cluster, kind, namespace, name).get("conditions", [])
    return next((dict(one) for one in conditions if one["type"] == of), {"status": "", "reason": "", "message": ""})


def lease(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    """The heartbeat there."""
    done = cluster.kubectl(
        "get", "lease", "headrace-heartbeat", f"--namespace={namespace}", "--output=json", check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def answer(cluster: Cluster, namespace: str, service: str) -> tuple[int, str]:
    """Status and the engine's name of one small completion through a router's Service."""
    address = cluster.get("service", service, f"--namespace={namespace}")["spec"]["clusterIP"]
    asked = json.dumps({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]})
    words = ["--silent", "--max-time", "30", "--dump-header", "-", "--output", "/dev/null", "--data", asked]
    said = cluster.execute("curl", *words, f"http://{address}:8080/v1/chat/completions", check=False).stdout
    head = dict(line.lower().split(": ", 1) for line in said.splitlines() if ": " in line)
    first = said.split()
    return int(first[1]) if len(first) > 1 else 0, head.get("x-headrace-engine", "").strip()


@contextmanager
def for_tenants(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with our types and images, and none of ours running, before and after."""
    load(cluster, "operator", "router", "lab")
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *CRDS)
    cluster.established()
    empty(cluster)
    yield cluster
    empty(cluster)


def load(cluster: Cluster, *images: str) -> None:
    """Have helm for a cluster, and these images of ours in it."""
    for command in (["exec", "helm", "version"], ["load", *images]):
        done = subprocess.run(cluster_command(cluster.name, *command), capture_output=True, text=True, timeout=2400)
        assert done.returncode == 0, done.stderr


def empty(cluster: Cluster) -> None:
    """Take all tenants and installations out."""
    gone = ["--ignore-not-found", "--timeout=240s"]
    cluster.kubectl("delete", "namespace", f"--selector={TENANT}", *gone)
    roles = ["clusterrole,clusterrolebinding", "--selector=app.kubernetes.io/name=headrace"]
    cluster.kubectl("delete", *roles, *gone)


def ready(cluster: Cluster, namespace: str) -> None:
    """Wait until the tenant's policy is."""
    cluster.kubectl("wait", "--for=condition=Ready", "rpol/chat", f"--namespace={namespace}", "--timeout=240s")


def secret(cluster: Cluster, namespace: str, name: str, **data: str) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace}
    apply(cluster, [{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}])


def record(what: str, number: float) -> None:
    print(f"{what}: {number:.1f}")  # noqa: T201  for whoever measures with -s
