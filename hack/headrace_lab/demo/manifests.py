"""Writes the demo's manifests: the same resources that a cluster takes, so that a reader can learn from them.

Pure but for the text it returns; the caller writes the files. Everything declared about an engine (capacity, latency
against load) is what its hardware was measured to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import yaml

from headrace_api.base import API_VERSION
from headrace_lab.demo.fleet import ENGINES, MODEL, NAMESPACE, POLICY, EngineSite, round_trip
from headrace_lab.engine.hardware import LONG_PROMPTS, declared
from headrace_lab.workload.frontends import FRONTENDS
from headrace_lab.workload.requests import BATCH, INTERACTIVE, Request, WorkloadSpec

MAX_ATTEMPTS = 3


def brief(seconds: float, duration: float) -> str:
    """A time constant made for a run of a minute, shortened with a shorter one, as a duration."""
    return f"{round(1000 * seconds * min(1.0, duration / 60.0))}ms"


def engine(site: EngineSite, urls: Sequence[str], duration: float) -> dict[str, Any]:
    """The InferenceEngine of a simulated engine."""
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceEngine",
        "metadata": {"name": site.name, "namespace": NAMESPACE},
        "spec": {
            "models": [{"name": MODEL}],
            "endpoints": {"urls": list(urls), "replicas": len(urls)},
            "location": {"region": site.region},
            "runtime": "vLLM",
            **declared(site.hardware, mix=LONG_PROMPTS),
            "rampUp": brief(5, duration),
        },
    }


def policy(spec: WorkloadSpec, requests: Sequence[Request], trips: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """The RoutingPolicy that rules them all: declared demand, round trips, affinity by conversation, two priorities."""
    regions = sorted({frontend.region for frontend in FRONTENDS} | {site.region for site in ENGINES})
    return {
        "apiVersion": API_VERSION,
        "kind": "RoutingPolicy",
        "metadata": {"name": POLICY, "namespace": NAMESPACE},
        "spec": {
            "models": [{"name": MODEL}],
            "strategy": {"type": "Optimized"},
            "frontends": [
                {
                    "name": frontend.name,
                    "location": {"region": frontend.region},
                    "demand": _demand(spec, requests, frontend.share),
                }
                for frontend in FRONTENDS
            ],
            "network": {
                "roundTrip": [
                    {"from": here, "to": there, "latency": f"{round_trip(trips, here, there) * 1000:g}ms"}
                    for here, there in combinations(regions, 2)
                ]
            },
            # At a few requests a second chance alone changes demand by a tenth; what gains less than 1 % may stay.
            "objective": {"deadbandPermille": 10},
            "affinity": {"keys": [{"header": "x-session-id"}]},
            "protection": {
                "retry": {"maxAttempts": MAX_ATTEMPTS},
                "shedding": {"priorities": [{"name": INTERACTIVE, "value": 100}, {"name": BATCH, "value": 10}]},
            },
            "ejection": {"consecutive": 3, "base": "1s", "max": "5s"},
        },
    }


def operator_config(routers: Mapping[str, str], duration: float) -> dict[str, Any]:
    """The operator's configuration; faster than its defaults, because a demo's fault lasts seconds, not hours."""
    return {
        "tick": "1s",
        "scrape": {"interval": "1s", "timeout": "800ms"},
        "routers": [{"frontend": name, "urls": [url]} for name, url in routers.items()],
        "liveness": {"refused": 2},
        "penalty": {
            "after": brief(4, duration),
            "window": brief(6, duration),
            "minRequests": 8,
            "recoverAfter": brief(5, duration),
            "recoverStep": brief(2, duration),
        },
    }


def texts(resources: Sequence[dict[str, Any]]) -> dict[str, str]:
    """File name -> YAML of each resource."""
    return {
        f"{resource['kind'].lower()}-{resource['metadata']['name']}.yaml": yaml.safe_dump(resource, sort_keys=False)
        for resource in resources
    }


def fleet_manifests(urls: Mapping[str, Sequence[str]], duration: float) -> list[dict[str, Any]]:
    """All engines' manifests; ``urls`` by engine name."""
    return [engine(site, urls[site.name], duration) for site in ENGINES]


def _demand(spec: WorkloadSpec, requests: Sequence[Request], share: float) -> dict[str, Any]:
    rate = spec.per_second * share / sum(frontend.share for frontend in FRONTENDS)
    count = max(1, len(requests))
    return {
        "requestsPerSecond": f"{round(rate * 1000)}m",
        "inputTokens": sum(request.input_tokens for request in requests) // count,
        "outputTokens": sum(request.output_tokens for request in requests) // count,
    }
