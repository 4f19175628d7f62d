"""Keys and certificates as the chart mounts them, on a real kubelet: rotated while clients ask, read by nobody else."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from headrace_api.table import TableAuth, TableService, TableTls
from support.certificates import Authority, Issued
from support.checkout import ROOT
from support.cluster import Cluster, await_true
from support.live_router import Inside, apply
from support.router_table import EngineAt, routing_table, table_bytes

pytestmark = [pytest.mark.long, pytest.mark.timeout(2700)]  # with nothing cached all of Kubernetes is compiled

SYSTEM, INFERENCE = "access-live", "access-live-engines"
SUPPORT = ROOT / "tests" / "support"
SERVICE = "headrace-router-fe-a"
VALUES = {
    "image": {"registry": "localhost/headrace", "tag": "test"},
    "operator": {"enabled": False},
    "crds": {"install": False},
    "rbac": {"aggregate": False},
    "routers": [
        {
            "frontend": "fe-a",
            "policies": [f"{INFERENCE}/chat"],
            "replicas": 1,
            "graceSeconds": 5,
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
            "tls": {"secret": "fe-a-tls"},
            "apiKeys": {"secret": "fe-a-keys"},
            "credentials": {
                "secrets": [{"namespace": INFERENCE, "name": "engine-key", "from": "copied-engine-key"}],
                "configMaps": [{"namespace": INFERENCE, "name": "engine-ca"}],
            },
        }
    ],
}


def secret(name: str, namespace: str = SYSTEM, **contents: bytes) -> dict[str, Any]:
    data = {key.replace("__", "."): base64.b64encode(content).decode() for key, content in contents.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


def config(name: str, namespace: str, **contents: str) -> dict[str, Any]:
    data = {key.replace("__", "."): content for key, content in contents.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def keys(*each: str) -> dict[str, Any]:
    lines = "".join(f"alice sha256:{hashlib.sha256(key.encode()).hexdigest()}\n" for key in each)
    return secret("fe-a-keys", team=lines.encode())


def certificate(issued: Issued, name: str = "fe-a-tls", namespace: str = SYSTEM) -> dict[str, Any]:
    return secret(name, namespace, tls__crt=issued.cert, tls__key=issued.key) | {"type": "kubernetes.io/tls"}


def engine() -> list[dict[str, Any]]:
    container = {
        "name": "engine",
        "image": "localhost/headrace/router:test",
        "imagePullPolicy": "Never",
        "command": ["/opt/headrace/bin/python", "/engine/engine.py", "8443", "/tls/tls.crt", "/tls/tls.key"],
        "volumeMounts": [{"name": "program", "mountPath": "/engine"}, {"name": "tls", "mountPath": "/tls"}],
        "readinessProbe": {"tcpSocket": {"port": 8443}},
    }
    volumes = [
        {"name": "program", "configMap": {"name": "program"}},
        {"name": "tls", "secret": {"secretName": "engine-tls"}},
    ]
    metadata = {"name": "engine", "namespace": INFERENCE, "labels": {"app": "engine"}}
    return [
        config("program", INFERENCE, engine__py=(SUPPORT / "engine_with_key.py").read_text()),
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
         "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1}},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata,
         "spec": {"selector": {"app": "engine"}, "ports": [{"name": "https", "port": 8443}]}},
    ]  # fmt: skip


def table() -> str:
    made = routing_table({"a": EngineAt(())}, policy="chat")
    (only,) = made.engines
    ours = msgspec.structs.replace(
        only,
        id=f"{INFERENCE}/a",
        service=TableService(name="engine", namespace=INFERENCE, port=8443),
        tls=TableTls(server_name="engine.example", ca_config_map="engine-ca", ca_key="ca.crt"),
        auth=TableAuth(secret="engine-key", key="token"),
    )
    text = table_bytes(msgspec.structs.replace(made, policy_namespace=INFERENCE, engines=(ours,))).decode()
    return text.replace("inference/a", f"{INFERENCE}/a")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def cluster(bare: Cluster, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The chart's routers before one engine; what engines name isn't there yet."""
    bare.load("router")
    gone = ["--ignore-not-found", "--timeout=240s"]
    for namespace in (SYSTEM, INFERENCE):
        apply(bare, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    apply(
        bare,
        certificate(authority.issue("engine.example"), "engine-tls", INFERENCE),
        *engine(),
        config("headrace-chat-fe-a", INFERENCE, table__json=table()),
        certificate(authority.issue("127.0.0.1", f"{SERVICE}.{SYSTEM}.svc")),
        keys("hr-0"),
    )
    values = tmp_path_factory.mktemp("access") / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    chart = str(ROOT / "manifests" / "charts" / "headrace")
    bare.execute("helm", "install", "headrace", chart, f"--namespace={SYSTEM}", f"--values={values}")
    bare.kubectl("rollout", "status", f"deployment/{SERVICE}", f"--namespace={SYSTEM}", "--timeout=240s")
    yield bare
    bare.execute("helm", "uninstall", "headrace", f"--namespace={SYSTEM}", check=False)
    bare.kubectl("delete", "namespace", SYSTEM, INFERENCE, *gone)


def changed(cluster: Cluster, *objects: dict[str, Any]) -> None:
    """New contents; without a change of the pod the kubelet would look at them once a minute."""
    apply(cluster, *objects)
    router = ["pods", f"--namespace={SYSTEM}", "--selector=app.kubernetes.io/component=router"]
    cluster.kubectl("annotate", *router, "--overwrite", f"headrace.dev/looked={time.time_ns()}")


def page(cluster: Cluster, path: str, port: int = 9090) -> str:
    reading = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}{path}').read().decode())"
    python = ["--", "/opt/headrace/bin/python", "-c", reading]
    return cluster.kubectl("exec", f"--namespace={SYSTEM}", f"deployment/{SERVICE}", *python).stdout


def address(cluster: Cluster) -> str:
    found = cluster.get("pods", f"--namespace={SYSTEM}", "--selector=app.kubernetes.io/component=router")
    return str(found["items"][0]["status"]["podIP"])


def test_rotated_on_a_kubelet_while_clients_ask(cluster: Cluster, authority: Authority, tmp_path: Path) -> None:
    at = address(cluster)
    detail = json.loads(page(cluster, "/readyz"))
    assert len(detail["access"]["engines"]) == 2

    changed(
        cluster,
        secret("copied-engine-key", token=b"sk-1\n"),
        config("engine-ca", SYSTEM, ca__crt=authority.cert.decode()),
        certificate(authority.issue(at)),
    )
    await_true(lambda: not json.loads(page(cluster, "/readyz"))["access"]["engines"], "what engines name is there")
    ca, key = tmp_path / "ca.crt", tmp_path / "key"
    ca.write_bytes(authority.cert)
    key.write_text("hr-0")
    await_true(lambda: accepted(cluster, at, ca, "hr-0"), "the new certificate names the pod's address")

    asked = [str(SUPPORT / "keyed_load.py"), f"https://{at}:8080", str(ca), str(key)]
    with Inside(cluster, sys.executable, *asked) as load:
        for turn in range(1, 3):
            before = handshakes(cluster)
            changed(cluster, keys(f"hr-{turn - 1}", f"hr-{turn}"))
            await_true(lambda turn=turn: accepted(cluster, at, ca, f"hr-{turn}"), "the new key is known")
            key.with_suffix(".new").write_text(f"hr-{turn}")
            key.with_suffix(".new").replace(key)
            changed(
                cluster,
                certificate(authority.issue(at)),
                secret("copied-engine-key", token=f"sk-{turn + 1}".encode()),
            )
            await_true(
                lambda turn=turn: shown(cluster, at, ca, f"hr-{turn}") == [f"Bearer sk-{turn + 1}"], "its new key"
            )
            await_true(lambda before=before: handshakes(cluster) > before, "clients ask on")
            changed(cluster, keys(f"hr-{turn}"))
            await_true(lambda turn=turn: not accepted(cluster, at, ca, f"hr-{turn - 1}"), "the old key is refused")
        said = json.loads(load.end())
    assert said["wrong"] == []
    assert said["served"] > 10
    assert {json.loads(text)["authorization"][0] for text in said["shown"]} == {f"Bearer sk-{n}" for n in (1, 2, 3)}
    assert all(json.loads(text)["x-api-key"] == [] for text in said["shown"])


def test_nobody_reads_secrets_and_no_page_tells_a_key(cluster: Cluster) -> None:
    for verb in ("get", "list", "watch"):
        who = f"--as=system:serviceaccount:{SYSTEM}:{SERVICE}"
        for namespace in (SYSTEM, INFERENCE):
            can = cluster.kubectl("auth", "can-i", verb, "secrets", f"--namespace={namespace}", who, check=False)
            assert can.stdout.strip() == "no"
    told = "".join(page(cluster, path) for path in ("/readyz", "/metrics", "/debug/explain?model=m"))
    told += page(cluster, "/metrics", 9091)
    told += cluster.kubectl("logs", f"deployment/{SERVICE}", f"--namespace={SYSTEM}").stdout
    assert "headrace_tls_handshakes_total" in told
    for number in range(4):
        assert f"sk-{number}" not in told
        assert f"hr-{number}" not in told


def accepted(cluster: Cluster, at: str, ca: Path, key: str) -> bool:
    return answer(cluster, at, ca, key) is not None


def shown(cluster: Cluster, at: str, ca: Path, key: str) -> list[str]:
    """The Authorization that the engine was shown."""
    said = answer(cluster, at, ca, key)
    return [] if said is None else list(said["shown"]["authorization"])


def answer(cluster: Cluster, at: str, ca: Path, key: str) -> dict[str, Any] | None:
    """What the engine answers to one request; None where there is no answer of its."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); from keyed_load import once; print(once(*sys.argv[2:]))"
    command = [sys.executable, "-c", program, str(SUPPORT), f"https://{at}:8080", str(ca), key]
    done = cluster.execute(*command, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def handshakes(cluster: Cluster) -> float:
    lines = page(cluster, "/metrics", 9091).splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith('headrace_tls_handshakes_total{outcome="ok"}')
    )
