"""RoundRobin: every eligible engine gets the same. Pure; sees neither load nor distance nor hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace_operator.optimizer import EligiblePair
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.strategies.base import ruled


def round_robin(snapshot: Snapshot, policy: str, fixed: Mapping[str, float]) -> Solution:
    """The split of a RoundRobin policy."""
    return ruled(snapshot, policy, fixed, _shares)


def _shares(_: Snapshot, pairs: Sequence[EligiblePair]) -> Sequence[float]:
    return [1.0] * len(pairs)
