"""Writes a big fleet into a cluster, and has its replicas come and go; a program of its own, in the cluster's network.

``python -m support.fleet_writer KUBECONFIG HOST apply``: everything at once, Services first, in parallel. ``... churn
SECONDS PER_MINUTE``: so many replicas a minute stop or begin to be ready, spread evenly, always the same ones for a
seed. Each prints one line of JSON at its end. It writes as an administrator: the audit log tells whose a write is.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace_operator.kube.client import KubeClient, connect
from support.big_fleet import NAMESPACE, BigFleet

PATHS = {
    "Service": "/api/v1/namespaces/{}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "InferenceEngine": "/apis/headrace.dev/v1alpha1/namespaces/{}/inferenceengines",
    "RoutingPolicy": "/apis/headrace.dev/v1alpha1/namespaces/{}/routingpolicies",
}
WRITERS = 8


def write(client: KubeClient, objects: Iterable[dict[str, Any]]) -> int:
    """Create all of them; gives how many."""

    def create(one: dict[str, Any]) -> None:
        client.create(PATHS[one["kind"]].format(NAMESPACE), one)

    with ThreadPoolExecutor(WRITERS) as pool:
        return len(list(pool.map(create, objects)))


def churn(client: KubeClient, fleet: BigFleet, seconds: float, per_minute: float) -> int:
    """Flip the readiness of one replica of an engine at a time; gives how many flips there were."""
    chance = random.Random(7)
    down: set[int] = set()
    began, flips = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        if flips >= elapsed * per_minute / 60:
            time.sleep(0.05)
            continue
        number = chance.randrange(fleet.engines)
        down ^= {number}
        path = f"{PATHS['EndpointSlice'].format(NAMESPACE)}/{fleet.endpoint_slice(number, 0)['metadata']['name']}"
        ready = number not in down
        client.merge(path, {"endpoints": fleet.endpoint_slice(number, 0, ready=ready)["endpoints"]}, manager="churn")
        flips += 1
    return flips


def main(kubeconfig: str, host: str, what: str, *numbers: str) -> None:
    client, fleet = connect("the test cluster", kubeconfig=kubeconfig), BigFleet(host=host)
    began = time.time()
    if what == "apply":
        told: dict[str, Any] = {"backing": write(client, fleet.backing())}
        told["began"] = time.time()
        told["resources"] = write(client, fleet.resources())
    else:
        told = {"flips": churn(client, fleet, *map(float, numbers)), "began": began}
    print(json.dumps({**told, "ended": time.time()}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
