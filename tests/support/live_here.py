"""The cluster that a scenario of live_publisher.py runs in, and publishers of term after term on it."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.table import RoutingTable
from headrace_operator.kube.client import KubeClient, KubeFault, connect
from headrace_operator.publisher.cluster import ClusterPublisher, TermBehind, cluster_publisher
from support.engine_manifests import engine_dict, policy_dict
from support.tables import table_of

OPS = "publisher-ops"
NAMESPACE = "inf"
BEATS = "publisher-beats"
NAMESPACES = (OPS, NAMESPACE, BEATS)
GROUP = "/apis/headrace.dev/v1alpha1/namespaces/inf"
CONFIGMAPS = "/api/v1/namespaces/inf/configmaps"
SECONDS = 120.0
Json = dict[str, Any]


class Here:
    """The cluster, and publishers of term after term on it."""

    def __init__(self) -> None:
        self.api = connect("local")
        for namespace in NAMESPACES:
            with contextlib.suppress(KubeFault):
                self.api.create(
                    "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
        self.term = 1
        self.now = 0.0

    def publisher(
        self, term: int = 0, clusters: dict[str, Path] | None = None, may_write: Callable[[], bool] = lambda: True
    ) -> ClusterPublisher:
        """One of the next term, whatever stands."""
        client = connect("local", may_write=may_write)
        while True:
            try:
                return cluster_publisher(
                    client,
                    term or self.term,
                    namespace=OPS,
                    holder="pod",
                    watched=(NAMESPACE, BEATS),
                    clusters=clusters or {},
                    steady=lambda: self.now,
                )
            except TermBehind as behind:
                assert not term, "the term that was asked for is behind"
                self.term = behind.standing + 1

    def policy(self, name: str = "chat", **spec: Any) -> RoutingPolicy:
        """A policy, made anew."""
        return msgspec.convert(self.made("routingpolicies", policy_dict(name, **spec)), RoutingPolicy)

    def engine(self, name: str) -> InferenceEngine:
        return msgspec.convert(self.made("inferenceengines", engine_dict(name, "http://127.0.0.1:1")), InferenceEngine)

    def made(self, plural: str, manifest: Json) -> Json:
        path = f"{GROUP}/{plural}"
        self.api.delete(f"{path}/{manifest['metadata']['name']}")
        return self.api.create(path, manifest)

    def get(self, name: str) -> Json:
        return self.api.get(f"{CONFIGMAPS}/{name}")

    def version(self, name: str) -> str:
        return str(self.get(name)["metadata"]["resourceVersion"])

    def gone(self, name: str) -> bool:
        return missing(self.api, f"{CONFIGMAPS}/{name}")


def missing(api: KubeClient, path: str) -> bool:
    try:
        api.get(path)
    except KubeFault as fault:
        assert fault.missing, fault
        return True
    return False


def await_that(condition: Callable[[], object], what: str) -> float:
    """Wait until it holds; gives the seconds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < SECONDS, f"not in {SECONDS:.0f} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - begin


def kubectl(*arguments: str) -> str:
    return subprocess.run(["kubectl", *arguments], check=True, capture_output=True, text=True).stdout


def table(
    policy: RoutingPolicy, revision: int = 1, weight: int = 10_000, *, frontend: str = "fe-a", term: int = 1
) -> RoutingTable:
    return table_of(revision, weight, frontend=frontend, name=policy.metadata.name, uid=policy.metadata.uid, term=term)


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
