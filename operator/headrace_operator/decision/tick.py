"""Which components are solved anew on this tick, and which keep the weights that stand.

On the routing-weight path; pure. A component is solved when a table is missing or speaks of other models, when an edit
or an engine's coming or going changed what could be chosen, when shedding opens or closes, when the warm model says
that its weights are infeasible or too dear, or when they hold far more or fewer requests in flight than their tables
say. All else is evaluated as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import sqrt
from typing import Final, NamedTuple

import msgspec

from headrace_api.table import RoutingTable
from headrace_operator.decision.memory import Memory, Over, after_reading, demand_reading
from headrace_operator.optimizer import Verdict, evaluate, next_savings, overloaded
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.cut import Cutter
from headrace_operator.snapshot.model import PolicyState, SavingSince, Snapshot
from headrace_operator.strategies.base import Flows
from headrace_operator.strategies.run import Solve

Assess = Callable[[Snapshot, tuple[str, ...], Mapping[str, float]], Verdict]
Standing = Mapping[tuple[str, str], RoutingTable]


DRIFT_SHARE: Final = 0.3  # of a table's N*: more than estimates of steady demand wander
DRIFT_DEVIATIONS: Final = 1.5  # of a Poisson count of N*: what routers see as chance (z is 1 in their guard)
DRIFT_LEAST: Final = 1.0  # requests


class Outcome(NamedTuple):
    """What became of a component of Optimized policies on this tick.

    news: what could be chosen changed, or prices and in-flight numbers drifted: they are published although weights may
    be as they were.
    """

    solved: bool
    news: bool
    savings: tuple[SavingSince, ...]
    over: Over | None
    fixed: Mapping[str, float]


class Tick:
    """The solve seam of one decision: solves what has to be solved, evaluates the rest, remembers which was which."""

    def __init__(self, cut: Cutter, memory: Memory, standing: Standing, solve: Solve, assess: Assess | None) -> None:
        snapshot = cut.whole
        self._cut = cut
        self._last = Cutter(memory.last) if memory.last is not None else None
        self.outcomes: dict[tuple[str, ...], Outcome] = {}
        self._snapshot = snapshot
        self._memory = memory
        self._standing = standing
        self._solve = solve
        self._assess = assess
        self._over = {entry.policies: entry for entry in memory.over}
        self._policies = {policy.id: policy for policy in snapshot.policies}

    def __call__(self, snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Solution:
        """The solution of a component: the cold solve, or what stands, evaluated."""
        verdict = self._assess(snapshot, policies, fixed) if self._assess is not None else None
        over = self._overload(snapshot, policies, fixed, verdict)
        opened = over is not None and over.opened
        was_open = any(policy in self._memory.shedding for policy in policies)
        edited = self.edited(policies)
        drifted = False
        if verdict is not None and not verdict.moves and opened == was_open and not edited:
            standing = evaluate(snapshot, policies, _standing_flows(snapshot, policies), fixed=fixed)
            drifted = in_flight_drifted(standing, self._tables_of(policies))
            if not drifted:
                self.outcomes[policies] = Outcome(False, False, verdict.savings, over, fixed)
                return standing
        shedding = (set(snapshot.shedding) - set(policies)) | (set(policies) if opened else set())
        solution = self._solve(msgspec.structs.replace(snapshot, shedding=tuple(sorted(shedding))), policies, fixed)
        savings = next_savings(snapshot, solution) if solution.status == "Optimal" else ()
        self.outcomes[policies] = Outcome(True, edited or drifted, savings, over, fixed)
        return solution

    def _tables_of(self, policies: tuple[str, ...]) -> list[RoutingTable]:
        names = set(policies)
        return [table for (name, _), table in self._standing.items() if name in names]

    def edited(self, policies: tuple[str, ...]) -> bool:
        """Whether what could be chosen differs from what the standing tables were chosen from."""
        if self._last is not None:
            return _structure(self._last, policies) != _structure(self._cut, policies)
        return any(not self._covered(self._policies[policy]) for policy in policies)

    def _covered(self, policy: PolicyState) -> bool:
        """Whether the standing tables speak of just the models and classes that have demand now."""
        for frontend in policy.spec.frontends:
            table = self._standing.get((policy.id, frontend.name))
            entries = [
                entry
                for entry in self._snapshot.demand
                if entry.policy == policy.id and entry.frontend == frontend.name
            ]
            split = any(entry.prompt_class > 0 for entry in entries)
            edges = self._snapshot.class_edges if split else ()
            models = {entry.model for entry in entries}
            if table is None or models != {entry.model for entry in table.models} or edges != table.class_edges:
                return False
        return True

    def _overload(
        self, snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float], verdict: Verdict | None
    ) -> Over | None:
        shedding = any(policy in self._memory.shedding for policy in policies)
        if verdict is not None and not verdict.overloaded and not shedding:
            return None
        if not overloaded(snapshot, policies, fixed=fixed):
            return None
        return after_reading(self._over.get(policies), policies, demand_reading(snapshot, policies))


def in_flight_drifted(standing: Solution, tables: Iterable[RoutingTable]) -> bool:
    """Whether an engine's N*_fj is so far from its table's that routers would take growth for trouble, or see none.

    Their guard lets z sqrt(N*) pass; demand that doubled evenly moves no weight, and would make every router spill.
    """
    now = {
        (policy, frontend, engine.engine): number
        for engine in standing.engines
        for policy, frontend, number in engine.in_flight
    }
    for table in tables:
        policy = f"{table.policy_namespace}/{table.policy}"
        for entry in table.engines:
            told = entry.in_flight_here
            found = now.get((policy, table.frontend, entry.id), told)
            if abs(found - told) > max(DRIFT_SHARE * told, DRIFT_DEVIATIONS * sqrt(told), DRIFT_LEAST):
                return True
    return False


def _standing_flows(snapshot: Snapshot, policies: tuple[str, ...]) -> Flows:
    demand = {tuple(entry.key): entry for entry in snapshot.demand if entry.policy in policies}
    return {
        (entry.key, route.engine): route.weight * entry.requests_per_second
        for route in snapshot.previous
        if (entry := demand.get((route.policy, route.frontend, route.model, route.prompt_class))) is not None
    }


def _structure(cut: Cutter, policies: tuple[str, ...]) -> tuple[object, ...]:
    """What only an edit, or a replica's coming or going, changes: limits follow it even where weights don't."""
    snapshot = cut(policies)
    frontends = {frontend.name for policy in snapshot.policies for frontend in policy.spec.frontends}
    return (
        [(policy.spec, policy.served, policy.conflicts, policy.frozen) for policy in snapshot.policies],
        [
            (engine.id, engine.spec, engine.labels, engine.state, engine.alive, engine.ready)
            for engine in cut.selected(policies)
        ],
        [entry.key for entry in snapshot.demand],
        snapshot.class_edges,
        [count for count in snapshot.routers if count[0] in frontends],
    )
