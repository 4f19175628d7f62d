"""Small resources for tests of the operator's shell."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import Condition, PolicyStatus
from headrace_operator.snapshot.model import EngineState

NAMESPACE = "inf"
AT = "2026-01-01T00:00:00Z"
# A policy whose tables stand.
STATUS = PolicyStatus(
    observed_generation=1,
    conditions=(
        Condition(type="Ready", status="True", reason="Published", message="ok", last_transition_time=AT),
        Condition(type="Solved", status="True", reason="Optimal", message="ok", last_transition_time=AT),
    ),
)


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


def state_of(**fields: Any) -> EngineState:
    """The state of engine a, one replica ready."""
    return EngineState(id="inf/a", spec=engine("a").spec, ready=1.0, **fields)
