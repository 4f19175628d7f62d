"""Small worlds for tests of the operator's pure core: engines, policies and snapshots in one line each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.table import RoutingTable
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import DemandSignal, EngineSignal, Reading, Signals

AT = 1_795_953_600.0  # 2026-11-29T12:00:00Z
Raw = dict[str, Any]


def merged(base: Raw, over: Raw) -> Raw:
    """``base`` with ``over`` laid over it, mapping by mapping."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        result[key] = (
            merged(result[key], value) if isinstance(result.get(key), dict) and isinstance(value, dict) else value
        )
    return result


def engine(
    name: str = "a", rps: float | str = 100, *, replicas: int | None = 1, region: str = "r1", **spec: Any
) -> InferenceEngine:
    """An engine of model m behind a url; ``spec`` is laid over, ``metadata`` in it over the metadata."""
    metadata = spec.pop("metadata", {})
    base: Raw = {
        "models": [{"name": "m"}],
        "endpoints": {"urls": [f"http://{name}.example:8000"]} | ({} if replicas is None else {"replicas": replicas}),
        "location": {"region": region},
        "capacity": {"perReplica": {"requestsPerSecond": rps}},
    }
    raw = {"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": merged(base, spec)}
    return msgspec.convert(raw, InferenceEngine)


def frontend(name: str = "fe", rps: float | str | None = 10, *, region: str = "r1", **over: Any) -> Raw:
    """A front-end with declared demand (None: none declared)."""
    raw: Raw = {"name": name, "location": {"region": region}}
    if rps is not None:
        raw["demand"] = {"requestsPerSecond": rps}
    return merged(raw, over)


def policy(name: str = "p", frontends: Sequence[Raw] | None = None, **spec: Any) -> RoutingPolicy:
    """A policy of model m; ``spec`` is laid over, ``metadata`` in it over the metadata."""
    metadata = spec.pop("metadata", {})
    base: Raw = {"models": [{"name": "m"}], "frontends": list(frontends or [frontend()])}
    raw = {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata}, "spec": merged(base, spec)}
    return msgspec.convert(raw, RoutingPolicy)


def demand(
    frontend: str = "fe", rps: float = 10.0, *, policy: str = "ns/p", model: str = "m", age: float = 0.0, **over: Any
) -> DemandSignal:
    """A measured demand."""
    deviation = over.pop("deviation", 0.0)
    reading = Reading(value=rps, age=age, deviation=deviation)
    return DemandSignal(policy=policy, frontend=frontend, model=model, requests_per_second=reading, **over)


def measured(engine: str, **over: Any) -> EngineSignal:
    """A measured engine of namespace ns."""
    return EngineSignal(engine=f"ns/{engine}", **over)


def snapshot(
    engines: Sequence[InferenceEngine],
    policies: Sequence[RoutingPolicy],
    signals: Signals | None = None,
    *,
    at: float = AT,
    previous: Sequence[RoutingTable] = (),
    **more: Any,
) -> Snapshot:
    """The snapshot of a world."""
    return build_snapshot(engines, policies, signals or Signals(), at=at, previous=previous, **more)


def classic(b: int = 100) -> tuple[list[InferenceEngine], list[RoutingPolicy]]:
    """The classic example: front-ends A, B, C of 90, 120, 40 requests/s, an engine of 100, ``b``, 80 beside each."""
    flat = {"ttft": [{"utilizationPercent": 0, "latency": "200ms"}]}
    engines = [engine(name, rps, region=name, profile=flat) for name, rps in (("a", 100), ("b", b), ("c", 80))]
    pairs = (("b", "c", "40ms"), ("a", "b", "60ms"), ("a", "c", "80ms"))
    trips = [{"from": one, "to": other, "latency": latency} for one, other, latency in pairs]
    frontends = [frontend(f"fe-{name}", rps, region=name) for name, rps in (("a", 90), ("b", 120), ("c", 40))]
    objective = {"targetUtilizationPercent": 100}
    return engines, [policy("classic", frontends, network={"roundTrip": trips}, objective=objective)]
