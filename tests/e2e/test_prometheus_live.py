"""A Prometheus that finds pods by name, and a real Service's endpoints, as the operator's loader reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command

pytestmark = [pytest.mark.long, pytest.mark.timeout(2700)]  # with nothing cached all of Kubernetes is compiled

NAMESPACE = "prom-live"
FLEET = {
    "host": "0.0.0.0",  # in a pod
    "controlPort": 8001,
    "engines": [{"name": "engine", "hardware": "H100x4", "model": "llama-3.1-70b", "port": 8000}],
}
ENGINE = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: fleet}}
data: {{fleet.json: '{json.dumps(FLEET)}'}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: engine}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: engine}}}}
  template:
    metadata: {{labels: {{app: engine}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: engine
        image: localhost/headrace/lab:test
        imagePullPolicy: Never
        command: [python, -m, headrace_lab.engine, --spec, /etc/fleet/fleet.json]
        ports: [{{name: http, containerPort: 8000}}]
        readinessProbe: {{httpGet: {{path: /health, port: http}}, periodSeconds: 1}}
        volumeMounts: [{{name: fleet, mountPath: /etc/fleet}}]
      volumes: [{{name: fleet, configMap: {{name: fleet}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: engine}}
spec: {{selector: {{app: engine}}, ports: [{{name: api, port: 8000, targetPort: http}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: scraped}}
spec: {{clusterIP: None, selector: {{app: engine}}, ports: [{{name: http, port: 8000}}]}}
"""


class Reader:
    """What the loader sees now, kept up to date by a program in the cluster's network."""

    def __init__(self, cluster: Cluster, prometheus: str) -> None:
        paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "operator", "crds"))
        program = [sys.executable, "-m", "support.cluster_reader", NAMESPACE, prometheus]
        self.seen: dict[str, Any] = {}
        self.process = subprocess.Popen(
            cluster_command(cluster.name, "exec", "env", f"PYTHONPATH={paths}", *program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen = json.loads(line)

    def state(self, name: str) -> str:
        found: str = self.seen.get("states", {}).get(name, "")
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._following.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def apply(cluster: Cluster, text: str) -> None:
    cluster.kubectl("apply", f"--namespace={NAMESPACE}", "--filename=-", stdin=text)


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Iterator[Cluster]:
    for image in ("lab", "prometheus"):
        bare.load(image)
    bare.kubectl("create", "namespace", NAMESPACE)
    apply(bare, ENGINE)
    apply(bare, (ROOT / "hack" / "cluster" / "prometheus.yaml").read_text())
    for name in ("engine", "prometheus"):
        bare.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={NAMESPACE}", "--timeout=240s")
    try:
        yield bare
    finally:
        bare.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def reader(cluster: Cluster) -> Iterator[Reader]:
    address = cluster.get("service", "prometheus", f"--namespace={NAMESPACE}")["spec"]["clusterIP"]
    made = Reader(cluster, f"http://{address}:9090")
    try:
        yield made
    finally:
        made.end()


def scale(cluster: Cluster, name: str, replicas: int) -> None:
    cluster.kubectl("scale", f"deployment/{name}", f"--namespace={NAMESPACE}", f"--replicas={replicas}")


def test_pods_of_a_service_out_of_a_prometheus_that_finds_them_itself(cluster: Cluster, reader: Reader) -> None:
    """Three pods are read by their addresses; scaled down on purpose counts at once; Prometheus away is no loss."""
    await_true(lambda: reader.seen.get("ready") == 3.0, "three ready replicas")
    await_true(lambda: reader.state(f"engine {NAMESPACE}/engine from prom") == "Fresh", f"{reader.seen}")
    await_true(lambda: (reader.seen.get("interval") or 0) > 0, "two scrapes of 5 s")
    assert reader.seen["running"] == 0.0
    assert reader.seen["problems"] == []

    scale(cluster, "engine", 1)
    await_true(lambda: reader.seen["ready"] == 1.0, "one ready replica")
    await_true(lambda: reader.seen["agreed"], "a pod that is deleted is no mass loss")

    scale(cluster, "prometheus", 0)
    await_true(lambda: reader.seen["problems"], "the engine's condition says that its source is away")
    assert "metric source prom" in reader.seen["problems"][0]
    await_true(lambda: reader.state("metric source prom") == "Held", "held")
    assert reader.seen["ready"] == 1.0

    scale(cluster, "prometheus", 1)
    await_true(lambda: reader.state(f"engine {NAMESPACE}/engine from prom") == "Fresh", "back")
