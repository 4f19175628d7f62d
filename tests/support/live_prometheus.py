"""A real Prometheus in the staged cluster, and the installed operator reading from it in place of pages.

It finds its targets as two kinds of installation have them: one front-end's routers and the engines of America by name,
so that series carry a pod's address alone; those of Europe by what EndpointSlices say, with the labels that
kube-prometheus' monitors set, and with an instance that is no address, so that the labels must do.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from support.checkout import ROOT
from support.stage import INFERENCE, SYSTEM, Stage

MONITORING = "e2e-monitoring"
SOURCE = "cluster"
BY_ADDRESS, BY_LABELS = ("b200-westus2", "h200-eastus"), ("h100-swedencentral", "h200-westeurope")
ADDRESSED, LABELLED = "fe-us-east", "fe-eu-west"
HEADLESS = "by-address"
_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


class LivePrometheus:
    """Prometheus in the cluster of ``stage``; its operator reads engines and routers out of it."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.cluster = stage, stage.cluster

    @contextmanager
    def installed(self) -> Iterator[LivePrometheus]:
        """Put it there and point the operator at it; everything is as before when the context ends."""
        self.cluster.load("prometheus")
        before = self._revision()
        try:
            self.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(_headless()))
            self.cluster.kubectl("create", "namespace", MONITORING)
            self.scrape_every(5)
            self._apply(*(document for document in _documents() if document["kind"] != "ConfigMap"))
            self.scale(1)
            url = f"http://prometheus.{MONITORING}.svc.cluster.local:9090"
            source = {"name": SOURCE, "url": url, "interval": "2s"}
            self._configure({"metricSources": [source], "defaultSource": SOURCE})
            yield self
        finally:
            self._helm("rollback", "headrace", before, "--force-conflicts")
            self.cluster.kubectl("delete", "namespace", MONITORING, "--wait=false", check=False)
            names = [one["metadata"]["name"] for one in _headless()["items"]]
            self.cluster.kubectl("delete", "services", f"--namespace={INFERENCE}", *names, check=False)

    def scrape_every(self, seconds: int) -> None:
        """Its configuration, with the targets as EndpointSlices name them now; it counts from the next start on."""
        settings = {"scrape_interval": f"{seconds}s", "scrape_timeout": "4s"}
        config = {"global": settings, "scrape_configs": [*_by_name(), *self._by_slices()]}
        data = {"prometheus.yml": yaml.safe_dump(config)}
        self._apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prometheus"}, "data": data})

    def scale(self, replicas: int) -> None:
        """How many of it run: 0 stops it, and what it stored is gone."""
        self.cluster.kubectl("scale", "deployment/prometheus", f"--namespace={MONITORING}", f"--replicas={replicas}")
        self.cluster.kubectl(
            "rollout", "status", "deployment/prometheus", f"--namespace={MONITORING}", "--timeout=240s"
        )

    def rounds(self) -> int:
        """Rounds of queries that the operators made and that were answered."""
        wanted = {'target="source"', 'outcome="Read"'}
        return int(
            sum(
                value
                for name, labels, value in self.metrics()
                if name == "headrace_operator_reads_total" and wanted <= set(labels.split(","))
            )
        )

    def metrics(self) -> list[tuple[str, str, float]]:
        """All that the operators' pages say: name, labels, value."""
        found = []
        for pod in self.stage.pods("app.kubernetes.io/component=operator", SYSTEM):
            path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:9100/proxy/metrics"
            page = self.cluster.kubectl("get", "--raw", path).stdout
            found += [(name, labels, float(value)) for name, labels, value in _SAMPLE.findall(page)]
        return found

    def _apply(self, *documents: dict[str, Any]) -> None:
        self.cluster.kubectl("apply", f"--namespace={MONITORING}", "--filename=-", stdin=yaml.safe_dump_all(documents))

    def _configure(self, config: dict[str, object]) -> None:
        """Further configuration by the chart's values; the operators take it up by themselves."""
        settings = [f"--set-json=operator.config.{key}={json.dumps(value)}" for key, value in config.items()]
        chart = str(ROOT / "manifests" / "charts" / "headrace")
        self._helm("upgrade", "headrace", chart, "--reuse-values", "--force-conflicts", *settings)

    def _revision(self) -> str:
        """The release as it is."""
        return str(json.loads(self._helm("status", "headrace", "--output=json"))["version"])

    def _helm(self, *arguments: str) -> str:
        said = self.cluster.execute("helm", *arguments, f"--namespace={SYSTEM}").stdout
        # Else the kubelet looks at the mounted file once a minute.
        self.cluster.kubectl(
            *("annotate", "pods", f"--namespace={SYSTEM}", "--selector=app.kubernetes.io/component=operator"),
            *("--overwrite", f"headrace.dev/looked={time.time_ns()}"),
        )
        return said

    def _by_slices(self) -> list[dict[str, Any]]:
        engines = [(INFERENCE, engine, "http", 8000) for engine in BY_LABELS]
        return [
            {
                "job_name": service,
                "static_configs": [
                    {"targets": [f"{address}:{port}"], "labels": _labels(namespace, service, endpoint, pod)}
                    for address, pod in self._endpoints(namespace, service)
                ],
            }
            for namespace, service, endpoint, port in [
                *engines,
                (SYSTEM, f"headrace-router-{LABELLED}-admin", "admin", 9090),
            ]
        ]

    def _endpoints(self, namespace: str, service: str) -> list[tuple[str, str]]:
        """Address and pod of a Service's endpoints."""
        slices = self.cluster.get(
            "endpointslices", f"--namespace={namespace}", f"--selector=kubernetes.io/service-name={service}"
        )
        return [
            (endpoint["addresses"][0], endpoint["targetRef"]["name"])
            for one in slices["items"]
            for endpoint in one.get("endpoints") or ()
        ]


def _documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "hack" / "cluster" / "prometheus.yaml").read_text()))


def _headless() -> dict[str, Any]:
    """A Service whose name means the addresses of all engines that are found by address."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"{HEADLESS}-{engine}", "namespace": INFERENCE},
                "spec": {
                    "clusterIP": "None",
                    "selector": {"app.kubernetes.io/instance": engine},
                    "ports": [{"name": "http", "port": 8000}],
                },
            }
            for engine in BY_ADDRESS
        ],
    }


def _by_name() -> list[dict[str, Any]]:
    engines = [f"{HEADLESS}-{engine}.{INFERENCE}.svc.cluster.local" for engine in BY_ADDRESS]
    routers = [f"headrace-router-{ADDRESSED}-admin.{SYSTEM}.svc.cluster.local"]
    return [
        {
            "job_name": job,
            "dns_sd_configs": [{"names": names, "type": "A", "port": port, "refresh_interval": "2s"}],
        }
        for job, names, port in (("engines", engines, 8000), ("routers", routers, 9090))
    ]


def _labels(namespace: str, service: str, endpoint: str, pod: str) -> dict[str, str]:
    """What kube-prometheus' monitors set; the instance, which is an address there, is none here."""
    return {
        "namespace": namespace,
        "service": service,
        "endpoint": endpoint,
        "pod": pod,
        "container": "engine",
        "instance": pod,
    }
