"""The operator's loop without its shell: builds snapshots, decides, remembers; for tests that follow several ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import PolicyStatus
from headrace_api.table import RoutingTable
from headrace_operator.decision.decide import Decision, decide
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.publication import key_of
from headrace_operator.decision.warm import WarmModels
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.signals import Reading, Signals
from headrace_operator.strategies.optimized import optimized
from support.world import AT, demand, engine, policy

TARGET = {"targetUtilizationPercent": 100}
FAR = {"roundTrip": [{"from": "r1", "to": "r2", "latency": "40ms"}, {"from": "r1", "to": "r3", "latency": "60ms"}]}


def quiet(decision: Decision) -> bool:
    return decision[:6] == ((), (), (), (), (), ())


def reasons(decision: Decision) -> list[tuple[str, str, str]]:
    return [(event.kind, event.id, event.reason) for event in decision.events]


def three() -> list[Any]:
    flat = {"ttft": [{"utilizationPercent": 0, "latency": "10ms"}]}
    return [engine(name, 20, region=f"r{place}", profile=flat) for place, name in enumerate("abc", start=1)]


def one(**more: Any) -> Any:
    return policy(network=FAR, objective=TARGET, **more)


HALF = Reading(value=0.5)
SLOW = {"ttft": [{"utilizationPercent": 0, "latency": "5s"}]}
LABELS = {"labels": {"tier": "prod"}}


def offered(rps: float, **more: Any) -> Signals:
    return Signals(demand=(demand(rps=rps),), **more)


class Ticks:
    """An operator on arguments; tables and statuses are kept as a state directory would."""

    def __init__(self, *, warm: bool = True, uid: str = "state") -> None:
        self.at = AT
        self.memory = Memory()
        self.tables: dict[tuple[str, str], RoutingTable] = {}
        self.statuses: dict[str, PolicyStatus] = {}
        self.uid = uid
        self.term = 1
        self.warm = WarmModels() if warm else None

    def tick(
        self,
        engines: Sequence[InferenceEngine],
        policies: Sequence[RoutingPolicy],
        signals: Signals | None = None,
        *,
        after: float = 5.0,
        solve: Any = optimized,
        revision: int = 0,
    ) -> Decision:
        """One tick ``after`` seconds later."""
        self.at += after
        tables = tuple(self.tables.values())
        snapshot = build_snapshot(
            engines,
            policies,
            signals or Signals(),
            at=self.at,
            previous=(*tables, *self.memory.shadow),
            savings=self.memory.savings,
            shedding=self.memory.shedding,
        )
        decision = decide(
            snapshot,
            self.memory,
            tables,
            uid=self.uid,
            term=self.term,
            revision=revision,
            assess=self.warm.assess if self.warm else None,
            statuses=self.statuses,
            solve=solve,
        )
        self.memory = decision.memory
        self.tables |= {key_of(table): table for table in decision.tables}
        self.statuses |= dict(decision.statuses)
        return decision

    def restart(self) -> None:
        """A new process on the same state: tables and statuses stand, memory and warm models are gone."""
        self.memory = Memory()
        self.warm = WarmModels()
        self.term += 1

    def weights(self, frontend: str, policy: str = "ns/p") -> dict[str, int]:
        """Weights above zero of a front-end's only model."""
        (model,) = self.tables[policy, frontend].models
        return {route.engine.removeprefix("ns/"): route.weight for route in model.classes[0].routes if route.weight > 0}

    def condition(self, name: str, policy: str = "ns/p") -> tuple[str, str]:
        """Status and reason of a condition; empty where it does not stand."""
        for condition in self.statuses[policy].conditions:
            if condition.type == name:
                return condition.status, condition.reason
        return "", ""
