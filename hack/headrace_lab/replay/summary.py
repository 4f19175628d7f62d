"""Outcomes in figures: counts and percentiles, over all and by front-end.

Off every path; pure. A figure of nothing is null, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from headrace_lab.replay.outcome import FAILURES, Outcome, Result


class Figures(msgspec.Struct, frozen=True, rename="camel"):
    """Percentiles in seconds (nearest rank); null where nothing was measured."""

    p50: float | None
    p95: float | None
    p99: float | None


class Counts(msgspec.Struct, frozen=True, rename="camel"):
    """Requests by how they ended. ``failed``: every failure, cut and lost among them; shed and not sent stand apart."""

    requests: int
    done: int
    failed: int
    cut: int
    shed: int
    lost_needlessly: int
    not_sent: int


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Nearest-rank quantile of ascending values; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def figures(values: Iterable[float]) -> Figures:
    """The three percentiles that people ask for."""
    ordered = sorted(values)
    return Figures(*(None if (value := quantile(ordered, q)) is None else round(value, 4) for q in (0.5, 0.95, 0.99)))


def count(outcomes: Iterable[Outcome]) -> Counts:
    """How many requests ended how."""
    results = [(outcome.result, outcome.lost_needlessly) for outcome in outcomes]
    return Counts(
        requests=len(results),
        done=sum(result is Result.DONE for result, _ in results),
        failed=sum(result in FAILURES for result, _ in results),
        cut=sum(result is Result.CUT for result, _ in results),
        shed=sum(result is Result.SHED for result, _ in results),
        lost_needlessly=sum(lost for _, lost in results),
        not_sent=sum(result is Result.NOT_SENT for result, _ in results),
    )


def ttft_of(outcomes: Iterable[Outcome]) -> Figures:
    """Time to first token over the requests that had one."""
    return figures(outcome.ttft for outcome in outcomes if outcome.ttft is not None)


def end_to_end_of(outcomes: Iterable[Outcome]) -> Figures:
    """Duration over the requests that were done."""
    return figures(outcome.duration for outcome in outcomes if outcome.result is Result.DONE)
