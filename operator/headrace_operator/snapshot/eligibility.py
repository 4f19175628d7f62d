"""Eligibility: which (source, engine) pairs may exist at all, and the rule that excluded each of the others.

On the routing-weight path, pure. Three questions that factorise, so that a large fleet costs rows and not pairs:
does the engine serve what the policy's model asks for, can this front-end use it, is it in service now. The last may
change every tick and keeps its column in the warm model; the first two change only with an edit.
"""

from __future__ import annotations

from math import isfinite
from typing import Final, NamedTuple

from headrace_api.engine import ServedModel
from headrace_api.policy import Frontend
from headrace_operator.snapshot.model import EngineState, PolicyState
from headrace_operator.snapshot.work import LEAST_WORK, MOST_WORK

MODEL_NOT_SERVED: Final = "ModelNotServed"
NOT_SELECTED: Final = "NotSelected"
ELSEWHERE: Final = frozenset({MODEL_NOT_SERVED, NOT_SELECTED})
"""Reasons of engines that are another policy's: no news where a policy has engines of its own."""
# Reasons that lie in what is declared: such an engine is none of the policy's business, whatever becomes of it.
BY_DECLARATION: Final = frozenset(
    {"OtherNamespace", NOT_SELECTED, MODEL_NOT_SERVED, "CapabilityMissing", "ResidencyMissing", "Unreachable"}
)


class Exclusion(NamedTuple):
    """Why a pair has no column: a CamelCase reason, and the sentence people read."""

    reason: str
    message: str


def namespace(resource_id: str) -> str:
    """The namespace in an id ``namespace/name``."""
    return resource_id.partition("/")[0]


def bare_name(resource_id: str) -> str:
    """The name in an id ``namespace/name``."""
    return resource_id.rpartition("/")[2]


def served_as(engine: EngineState, model: str) -> ServedModel | None:
    """The engine's model that answers to ``model``, as base or as one of its adapters."""
    return next((served for served in engine.spec.models if model == served.name or model in served.adapters), None)


def model_exclusion(policy: PolicyState, model: str, engine: EngineState) -> Exclusion | None:
    """Whether the policy may use the engine for the model: selector, model or adapter, capabilities."""
    labels = dict(engine.labels)
    for name, value in sorted(policy.spec.engine_selector.match_labels.items()):
        if labels.get(name) != value:
            has = f"has {labels[name]!r}" if name in labels else "has none"
            return Exclusion(NOT_SELECTED, f"the policy selects {name}={value}, {bare_name(engine.id)} {has}")
    served = served_as(engine, model)
    if served is None:
        return Exclusion(MODEL_NOT_SERVED, f"{bare_name(engine.id)} doesn't serve {model}")
    needs = {need for entry in policy.spec.models if entry.name in (model, served.name) for need in entry.requires}
    missing = sorted(needs - set(engine.spec.capabilities))
    if missing:
        return Exclusion("CapabilityMissing", f"{model} requires {', '.join(missing)}, {bare_name(engine.id)} lacks it")
    return None


def frontend_exclusion(frontend: Frontend, engine: EngineState) -> Exclusion | None:
    """Whether the front-end can and may use the engine: residency, then reach by Service or urls."""
    missing = sorted(set(frontend.residency) - set(engine.spec.residency))
    if missing:
        return Exclusion(
            "ResidencyMissing",
            f"{frontend.name} demands residency {', '.join(missing)}, {bare_name(engine.id)} lacks it",
        )
    endpoints = engine.spec.endpoints
    if (endpoints.service and frontend.location.cluster == engine.spec.location.cluster) or endpoints.urls:
        return None
    home = engine.spec.location.cluster or "no stated cluster"
    return Exclusion(
        "Unreachable",
        f"{bare_name(engine.id)} has no urls, and its Service is in {home}, "
        f"{frontend.name} in {frontend.location.cluster or 'no stated cluster'}",
    )


def service_exclusion(engine: EngineState) -> Exclusion | None:
    """Whether the engine is in service now: its state, liveness, ready replicas."""
    name = bare_name(engine.id)
    if engine.state != "Active":
        return Exclusion(engine.state, engine.message or f"{name} is {engine.state.lower()}")
    if not engine.alive:
        return Exclusion("Down", f"{name} doesn't answer")
    if not isfinite(engine.ready):
        return Exclusion("ReplicasUnknown", f"the ready replicas of {name} are unknown ({engine.ready})")
    if engine.ready <= 0:
        return Exclusion("NoReadyReplicas", f"{name} has no ready replica")
    return None


def capacity_exclusion(engine: EngineState, work: float) -> Exclusion | None:
    """Whether the pair's work (replica-seconds a request) is a capacity at all."""
    if LEAST_WORK <= work <= MOST_WORK:
        return None
    name = bare_name(engine.id)
    if work > MOST_WORK:
        return Exclusion("NoCapacity", f"{name} declares a capacity of 0, or next to it")
    return Exclusion(
        "CapacityUnknown",
        f"capacity.perReplica of {name} can't be turned into requests: state requestsPerSecond, or token rates",
    )


def exclusion(policy: PolicyState, frontend: Frontend, model: str, engine: EngineState) -> Exclusion | None:
    """The first rule that excludes a pair, capacity apart; None where it is eligible."""
    if namespace(policy.id) != namespace(engine.id):
        return Exclusion("OtherNamespace", f"{engine.id} is not in the policy's namespace")
    return model_exclusion(policy, model, engine) or frontend_exclusion(frontend, engine) or service_exclusion(engine)
