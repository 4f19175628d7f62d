"""What is kept of an engine and its replicas between samples, and what that says of life, death and readiness.

On the engine-signal path; no I/O, no clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace_api.engine import InferenceEngineSpec
from headrace_operator.estimators import ramp as ramps
from headrace_operator.estimators import staleness
from headrace_operator.estimators.liveness import Liveness, Outcome, engine_alive
from headrace_operator.estimators.penalty import Measured, Penalty
from headrace_operator.estimators.replica import ReplicaWindow
from headrace_operator.loader.pools import Key, Loss


@dataclass(slots=True)
class Replica:
    """One replica: its window, and whether it lives.

    up: what a metric source says of it. tried: time of the last attempt, and what came of it.
    """

    window: ReplicaWindow
    live: Liveness = field(default_factory=Liveness)
    problem: str = ""
    up: bool | None = None
    tried: tuple[float, Outcome | None] = (float("-inf"), None)


@dataclass(slots=True)
class Engine:
    """One engine between samples.

    first: it belongs to the operator's first view. source: the metric source it is read from; empty: its own pages.
    pooled: its replicas are a Service's endpoints. found: they are those that the metric source finds.
    """

    spec: InferenceEngineSpec
    limits: staleness.Thresholds
    first: bool
    source: str = ""
    pooled: bool = False
    problem: str = ""
    replicas: dict[Key, Replica] = field(default_factory=dict)
    penalty: Penalty = field(default_factory=Penalty)
    measured: Measured | None = None
    ramp: ramps.Ramp | None = None
    dead: bool = False
    hit_share: float | None = None
    background: float | None = None
    rung: str = "Unknown"
    rung_since: float = 0.0

    @property
    def models(self) -> frozenset[str]:
        """What clients may ask it for."""
        return frozenset(name for model in self.spec.models for name in (model.name, *model.adapters))

    @property
    def found(self) -> bool:
        """Whether its replicas are those that the metric source finds."""
        return bool(self.source and self.spec.metrics.selector) and not self.pooled


def seems_dead(name: str, engine: Engine, ejected: Mapping[str, bool]) -> bool:
    """Whether an engine behind urls is dead by what is seen of it.

    A metric source's word alone is no death: that it can't scrape an engine counts only if routers can't connect.
    """
    replicas = engine.replicas.values()
    if engine.source:
        return bool(replicas) and all(one.up is False for one in replicas) and ejected.get(name, False)
    return engine_alive([replica.live for replica in replicas]) is False


def agrees(engine: Engine, loss: Loss, now: float, ejected: Mapping[str, bool]) -> bool:
    """Whether somebody else saw that the endpoint is lost: its page, its metric source, or the routers' connects.

    How many addresses routers know is no second word: they read the same EndpointSlices.
    """
    replica = engine.replicas.get(loss.key)
    if replica is not None and replica.tried[0] > loss.since and replica.tried[1] not in ("Read", "Answered"):
        return True
    if ejected.get(loss.engine, False):
        return True
    # One word counts once it has stood for as long as signals are believed: routers use what the Service lists.
    return now - loss.since >= engine.limits.degrade


def ready_behind_urls(engine: Engine) -> tuple[float, bool]:
    """Ready replicas of an engine without endpoints, and whether they were measured (else as declared)."""
    ends = engine.spec.endpoints
    states = list(engine.replicas.values())
    declared = float(ends.replicas if ends.replicas is not None else max(1, len(ends.urls)))
    alive = [replica for replica in states if replica.live.up is not False]
    read = [replica for replica in alive if replica.window.readings]
    if ends.replicas_from == "Metrics" and ends.replicas is None:
        known = [replica.up for replica in states if replica.up is not None]
        if engine.source:
            return (float(sum(known)), True) if known else (declared, False)
        return (float(len(read)), True) if read else (declared, False)
    if len(alive) < len(states):
        return declared * len(alive) / len(states), True
    return declared, bool(read) and ends.replicas is None
