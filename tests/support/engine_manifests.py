"""Small resources for tests of the operator's shell."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy

NAMESPACE = "inf"


def engine_dict(name: str, url: str | list[str], **spec: Any) -> dict[str, Any]:
    """An InferenceEngine of model m with a flat profile, as plain data."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "InferenceEngine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "models": [{"name": "m"}],
            "endpoints": {"urls": [url] if isinstance(url, str) else url},
            "capacity": {"perReplica": {"requestsPerSecond": 100}},
            "hardware": {"accelerator": "H100", "count": 1},
            "profile": {
                "ttft": [{"utilizationPercent": 0, "latency": "100ms"}],
                "tbot": [{"utilizationPercent": 0, "latency": "10ms"}],
            },
        }
        | spec,
    }


def policy_dict(name: str = "chat", demand: int = 60, **spec: Any) -> dict[str, Any]:
    """A RoutingPolicy of model m with front-ends fe-a and fe-b, as plain data."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "RoutingPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "models": [{"name": "m"}],
            "frontends": [
                {"name": "fe-a", "demand": {"requestsPerSecond": demand}},
                {"name": "fe-b", "demand": {"requestsPerSecond": demand}},
            ],
        }
        | spec,
    }


def engine(name: str, url: str | list[str] = "http://127.0.0.1:1", **spec: Any) -> InferenceEngine:
    """The same as a typed resource."""
    return msgspec.convert(engine_dict(name, url, **spec), InferenceEngine)


def policy(name: str = "chat", **spec: Any) -> RoutingPolicy:
    """The same as a typed resource."""
    return msgspec.convert(policy_dict(name, **spec), RoutingPolicy)
