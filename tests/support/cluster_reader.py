"""What the operator's loader sees of a real cluster: a program for `exec`, one line of JSON a second.

`python -m support.cluster_reader NAMESPACE PROMETHEUS`: one engine behind Service ``engine``:8000 in the namespace,
read out of the Prometheus at that address. EndpointSlices come through kubectl, all else is the operator's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from typing import Any

import msgspec

from headrace_api.endpoint_slices import Endpoint, read_endpoints, service_of
from headrace_api.engine import InferenceEngine
from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_places import MetricSource
from headrace_operator.loader.loader import Loader, scrape_settings
from headrace_operator.loader.sources import Sources

LEAST = 0.2


def objects(kind: str, namespace: str) -> list[dict[str, Any]]:
    command = ["kubectl", "get", kind, f"--namespace={namespace}", "--output=json", "--request-timeout=20s"]
    found: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["items"]
    return found


def endpoints(namespace: str) -> dict[str, tuple[Endpoint, ...]]:
    (service,) = [one for one in objects("services", namespace) if one["metadata"]["name"] == "engine"]
    slices = [one for one in objects("endpointslices", namespace) if service_of(one) == f"{namespace}/engine"]
    return {f"{namespace}/engine:8000": read_endpoints(slices, 8000, service)}


async def read(namespace: str, prometheus: str) -> None:
    engine = msgspec.convert(
        {
            "metadata": {"name": "engine", "namespace": namespace},
            "spec": {
                "models": [{"name": "llama-3.1-70b"}],
                "endpoints": {"service": {"name": "engine", "port": 8000}},
                "capacity": {"perReplica": {"requestsPerSecond": 10}},
            },
        },
        InferenceEngine,
    )
    source = MetricSource(name="prom", url=prometheus, interval="1s", timeout="2s")
    config = OperatorConfig(metric_sources=(source,), default_source="prom")
    loader, sources = Loader(config), Sources(scrape_settings(config))
    listed: dict[str, tuple[Endpoint, ...]] = {}
    while True:
        with contextlib.suppress(subprocess.CalledProcessError):  # the API server may be away for a moment
            listed = await asyncio.to_thread(endpoints, namespace)
        sources.retarget(loader.configure([engine], [], config, listed))
        loader.observe(await sources.read())
        signals = loader.signals(time.monotonic(), time.time())
        (seen,) = signals.engines
        told = {
            "ready": None if seen.ready_replicas is None else seen.ready_replicas.value,
            "agreed": seen.loss_agreed,
            "running": None if seen.running is None else seen.running.value,
            "interval": None if seen.running is None else seen.running.interval,
            "states": {state.name: state.state for state in signals.states},
            "problems": loader.views[f"{namespace}/engine"].problems,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(LEAST)


if __name__ == "__main__":
    asyncio.run(read(*sys.argv[1:3]))
