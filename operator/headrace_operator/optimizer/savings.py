"""Savings: since when a move that the movement price holds back would have saved.

On the routing-weight path, pure. The movement price falls to 0 as a saving lasts, so every move worth making is made;
this is the memory that the next snapshot carries. A new leader starts with none.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import SavingSince, Snapshot, SourceKey

LEAST_SAVING = 1e-6  # s a request; below it a saving is rounding


def next_savings(snapshot: Snapshot, solution: Solution) -> tuple[SavingSince, ...]:
    """Standing savings of the solution's sources: kept from the snapshot where they last, begun now where they are new.

    Savings of sources that the solution doesn't hold are not carried over: they belong to other solutions.
    """
    saving = ((route.source, route.engine) for route in solution.routes if route.saving > LEAST_SAVING)
    return standing_savings(snapshot, saving)


def standing_savings(snapshot: Snapshot, pairs: Iterable[tuple[SourceKey, str]]) -> tuple[SavingSince, ...]:
    """The pairs' savings with the time since when each stands, never later than the snapshot's."""
    since = {(old.policy, old.frontend, old.model, old.prompt_class, old.engine): old.since for old in snapshot.savings}
    return tuple(
        SavingSince(
            policy=source.policy,
            frontend=source.frontend,
            model=source.model,
            prompt_class=source.prompt_class,
            engine=engine,
            since=min(since.get((*source, engine), snapshot.at), snapshot.at),
        )
        for source, engine in pairs
    )
