"""Medians with their spread, ratios of one round, and verdicts. Pure: numbers in, numbers out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Better = Literal["higher", "lower"]
Verdict = Literal["aim", "must", "below", "not measured"]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Median of the rounds and their extremes."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    """None if there is no finite value: an unknown figure is not 0."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None
    return Spread(median=statistics.median(known), low=min(known), high=max(known))


def ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Ratio by round, of rounds that both have: what disturbed the machine in a round disturbed both."""
    return [ours[at] / theirs[at] for at in sorted(ours.keys() & theirs.keys()) if theirs[at] > 0]


def best_of(peers: Sequence[Mapping[int, float]], better: Better) -> dict[int, float]:
    """The best peer of each round."""
    choose = max if better == "higher" else min
    rounds = sorted({at for peer in peers for at in peer})
    return {at: choose(peer[at] for peer in peers if at in peer) for at in rounds}


def verdict(measured: float | None, must: float, aim: float, better: Better) -> Verdict:
    """Which of the two bounds a figure keeps."""
    if measured is None or not math.isfinite(measured):
        return "not measured"
    if measured >= aim if better == "higher" else measured <= aim:
        return "aim"
    return "must" if (measured >= must if better == "higher" else measured <= must) else "below"


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The order of round ``turn``: each name has each place in turn."""
    if not names:
        return []
    at = turn % len(names)
    return [*names[at:], *names[:at]]
