"""Nearest: all to the engine with the lowest round trip, ties by ready replicas. Pure; sees no load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace_operator.optimizer import EligiblePair
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.strategies.base import ruled


def nearest(snapshot: Snapshot, policy: str, fixed: Mapping[str, float]) -> Solution:
    """The split of a Nearest policy."""
    return ruled(snapshot, policy, fixed, _shares)


def _shares(_: Snapshot, pairs: Sequence[EligiblePair]) -> Sequence[float]:
    least = min(pair.round_trip for pair in pairs)
    return [pair.capacity if pair.round_trip == least else 0.0 for pair in pairs]
