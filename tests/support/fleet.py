"""Small fleets for tests of the optimizer: engines, policies and snapshots in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace_api.base import Location
from headrace_api.engine import (
    Capacity,
    Endpoints,
    InferenceEngineSpec,
    PerReplica,
    Profile,
    ProfilePoint,
    ReferenceMix,
    ServedModel,
    ServiceRef,
)
from headrace_api.policy import Frontend, Objective, PolicyModel, Publication, RoutingPolicySpec
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import (
    EngineState,
    PairNetwork,
    PolicyState,
    PreviousRoute,
    Snapshot,
    SourceDemand,
)
from headrace_operator.snapshot.signals import Factor

ONE_PRIORITY = (("default", 0, 1.0),)


def points(latencies: Mapping[int, float]) -> tuple[ProfilePoint, ...]:
    """Profile points from utilisation in percent to milliseconds."""
    return tuple(ProfilePoint(utilization_percent=at, latency=f"{value:g}ms") for at, value in latencies.items())


def profile(
    ttft: Mapping[int, float], tbot: Mapping[int, float] | None = None, mix: tuple[int, int] | None = None
) -> Profile:
    """A profile from latencies in milliseconds."""
    reference = ReferenceMix(input_tokens=mix[0], output_tokens=mix[1]) if mix else None
    return Profile(reference=reference, ttft=points(ttft), tbot=points(tbot or {}))


FLAT = profile({0: 100, 100: 100})
RISING = profile({0: 100, 50: 150, 80: 400, 100: 2000}, {0: 10, 100: 30}, (900, 220))


def engine(
    name: str,
    *,
    rate: float | None = 100,
    ready: float = 1.0,
    shape: Profile = FLAT,
    models: Sequence[str] = ("m",),
    per_replica: PerReplica | None = None,
    penalty: float = 1.0,
    trim: float = 1.0,
    alive: bool = True,
    background: float = 0.0,
    hit_share: float = 0.0,
    **spec: Any,
) -> EngineState:
    """An engine ``default/<name>`` of ``rate`` requests/s a replica."""
    figures = per_replica or PerReplica(requests_per_second=f"{round(rate * 1000)}m" if rate is not None else None)
    declared = InferenceEngineSpec(
        models=tuple(ServedModel(name=model) for model in models),
        endpoints=spec.pop("endpoints", Endpoints(service=ServiceRef(name="svc", port=8000))),
        capacity=Capacity(per_replica=figures),
        profile=shape,
        **spec,
    )
    return EngineState(
        id=f"default/{name}",
        spec=declared,
        ready=ready,
        alive=alive,
        state=declared.state,
        penalty=Factor(value=penalty),
        trim=Factor(value=trim),
        background=background,
        hit_share=hit_share,
    )


def policy(
    name: str = "chat",
    *,
    frontends: Iterable[str] = ("a", "b", "c"),
    models: Iterable[str] = ("m",),
    target: int | None = None,
    move_cost: str = "200ms",
    shift: int = 30,
    **spec: Any,
) -> PolicyState:
    """A policy ``default/<name>``."""
    return PolicyState(
        id=f"default/{name}",
        uid=name,
        generation=1,
        spec=RoutingPolicySpec(
            models=tuple(PolicyModel(name=model) for model in models),
            frontends=spec.pop("fronts", tuple(Frontend(name=front, location=Location()) for front in frontends)),
            objective=Objective(target_utilization_percent=target, move_cost=move_cost),
            publication=Publication(max_shift_percent=shift),
            **spec,
        ),
    )


def demand(frontend: str, rate: float, *, policy: str = "chat", **fields: Any) -> SourceDemand:
    """Declared demand of one source."""
    values: dict[str, Any] = {
        "model": "m",
        "prompt_class": 0,
        "deviation": 0.0,
        "input_tokens": 900.0,
        "output_tokens": 220.0,
        "origin": "Declared",
        "priorities": ONE_PRIORITY,
    }
    values.update(fields)
    return SourceDemand(policy=f"default/{policy}", frontend=frontend, requests_per_second=rate, **values)


def network(times: Mapping[tuple[str, str], float], *, policy: str = "chat") -> tuple[PairNetwork, ...]:
    """Round trips in milliseconds by (front-end, engine)."""
    return tuple(
        PairNetwork(policy=f"default/{policy}", frontend=front, engine=f"default/{name}", round_trip=value / 1000.0)
        for (front, name), value in times.items()
    )


def previous(weights: Mapping[tuple[str, str], float], *, policy: str = "chat") -> tuple[PreviousRoute, ...]:
    """Weights in force by (front-end, engine), of model m, class 0."""
    return tuple(
        PreviousRoute(
            policy=f"default/{policy}",
            frontend=front,
            model="m",
            prompt_class=0,
            engine=f"default/{name}",
            weight=value,
        )
        for (front, name), value in weights.items()
    )


CLASSIC_NETWORK = {
    ("a", "a"): 1, ("b", "b"): 1, ("c", "c"): 1, ("b", "c"): 40, ("c", "b"): 40,
    ("a", "b"): 60, ("b", "a"): 60, ("a", "c"): 80, ("c", "a"): 80,
}  # fmt: skip


def classic(b_rate: float = 100, **fields: Any) -> Snapshot:
    """Three front-ends with 90, 120 and 40 requests/s beside engines of 100, 100 and 80, flat profiles, target 100."""
    values: dict[str, Any] = {
        "at": 1000.0,
        "engines": (engine("a"), engine("b", rate=b_rate), engine("c", rate=80)),
        "policies": (policy(target=100),),
        "demand": (demand("a", 90), demand("b", 120), demand("c", 40)),
        "network": network(CLASSIC_NETWORK),
    }
    values.update(fields)
    return Snapshot(**values)


CHAT = ("default/chat",)


def flows_of(solution: Solution) -> dict[tuple[str, str], float]:
    """Requests/s by (front-end, engine), routes without traffic left out."""
    return {
        (route.source.frontend, route.engine.rpartition("/")[2]): route.flow for route in solution.routes if route.flow
    }


def shed_of(solution: Solution) -> dict[str, float]:
    """Requests/s shed by front-end, over all priorities."""
    return {entry.source.frontend: sum(amount for _, amount in entry.shed) for entry in solution.sources}
