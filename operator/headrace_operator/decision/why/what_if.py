"""Discrete questions, answered by solving again: a replica more, an engine gone, a request more.

On the routing-weight path; pure. Never read from a dual: a price holds for the next drop, not for the next replica
(the optimizer page, Explanations). Previous weights are left out of the question, as if there were time to settle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace_operator.decision.why.book import Book
from headrace_operator.decision.why.expected import Expected
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot, SourceKey
from headrace_operator.strategies.run import Solve

LEAST_MOVE: Final = 1e-3  # requests/s; less is rounding
CANDIDATES: Final = 6  # engines tried for one more replica, the highest price first


class Outcome(NamedTuple):
    """What a solution comes to: requests/s refused by value of priority (highest first), mean latency in seconds."""

    shed: tuple[float, ...]
    latency: float

    @property
    def refused(self) -> float:
        """Requests/s refused in all."""
        return sum(self.shed)


class Relief(NamedTuple):
    """One more replica at an engine: before and after."""

    engine: str
    before: Outcome
    after: Outcome


def outcome(snapshot: Snapshot, solution: Solution) -> Outcome:
    """A solution in two figures."""
    values = {demand.key: {name: value for name, value, _ in demand.priorities} for demand in snapshot.demand}
    shed: dict[int, float] = {}
    for source in solution.sources:
        for name, rate in source.shed:
            value = values.get(source.source, {}).get(name, 0)
            shed[value] = shed.get(value, 0.0) + rate
    mean = Expected(snapshot, solution).mean(solution.routes)
    return Outcome(tuple(round(shed[value], 6) for value in sorted(shed, reverse=True)), mean.total if mean else 0.0)


def settled(snapshot: Snapshot) -> Snapshot:
    """The snapshot without previous weights: no movement price, no bound on what one publication moves."""
    return msgspec.structs.replace(snapshot, previous=(), savings=())


def with_replicas(snapshot: Snapshot, engine: str, change: float) -> Snapshot:
    """The snapshot with some replicas more or fewer at one engine."""
    engines = tuple(
        msgspec.structs.replace(state, ready=max(0.0, state.ready + change)) if state.id == engine else state
        for state in snapshot.engines
    )
    return msgspec.structs.replace(snapshot, engines=engines)


def with_demand(snapshot: Snapshot, source: SourceKey, change: float) -> Snapshot:
    """The snapshot with some requests/s more or fewer at one source."""
    demand = tuple(
        msgspec.structs.replace(entry, requests_per_second=max(0.0, entry.requests_per_second + change))
        if entry.key == source
        else entry
        for entry in snapshot.demand
    )
    return msgspec.structs.replace(snapshot, demand=demand)


def best_replica(book: Book, solve: Solve, fixed: Mapping[str, float]) -> Relief | None:
    """Where one more replica helps most: least refused of the highest priority, then the lowest latency.

    None when no engine is full, or no replica anywhere would help.
    """
    policies = book.result.policies
    base = settled(book.snapshot)
    before = _solved(base, policies, solve, fixed)
    if before is None:
        return None
    reliefs = [
        Relief(name, before, after)
        for name in _worth_trying(book)
        if (after := _solved(with_replicas(base, name, 1.0), policies, solve, fixed)) is not None
    ]
    best = min(reliefs, key=lambda relief: (relief.after.shed, relief.after.latency, relief.engine), default=None)
    if best is None or (best.after.shed, best.after.latency) >= (before.shed, before.latency):
        return None
    return best


class Effect(NamedTuple):
    """What a change comes to: outcomes and objectives (seconds per second) before and after, and where flows went.

    moved: (source, engine, requests/s more or fewer), the largest first.
    """

    before: Outcome
    after: Outcome
    cost: float
    moved: tuple[tuple[SourceKey, str, float], ...]


def effect(book: Book, changed: Snapshot, solve: Solve, fixed: Mapping[str, float]) -> Effect | None:
    """The component on a changed snapshot against itself, both settled; None where one has no answer."""
    base = settled(book.snapshot)
    policies = book.result.policies
    old, new = solve(base, policies, fixed), solve(changed, policies, fixed)
    if "Failed" in (old.status, new.status):
        return None
    before = {(route.source, route.engine): route.flow for route in old.routes}
    after = {(route.source, route.engine): route.flow for route in new.routes}
    moved = [(source, engine, after.get((source, engine), 0.0) - flow) for (source, engine), flow in before.items()]
    moved += [(*key, flow) for key, flow in after.items() if key not in before]
    moved = [entry for entry in moved if abs(entry[2]) > LEAST_MOVE]
    moved.sort(key=lambda entry: (-abs(entry[2]), entry[0], entry[1]))
    return Effect(outcome(base, old), outcome(changed, new), new.objective - old.objective, tuple(moved))


def _worth_trying(book: Book) -> Iterable[str]:
    full = [name for name in book.engines if book.full(name)]
    ranked = sorted(full, key=lambda name: (-book.engines[name].price, name))
    return ranked[:CANDIDATES]


def _solved(snapshot: Snapshot, policies: tuple[str, ...], solve: Solve, fixed: Mapping[str, float]) -> Outcome | None:
    solution = solve(snapshot, policies, fixed)
    return outcome(snapshot, solution) if solution.status != "Failed" else None
