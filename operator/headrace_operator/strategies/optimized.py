"""Optimized: the linear programme sets the weights. Pure; the routing-weight path."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_operator.optimizer import solve
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot


def optimized(snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Solution:
    """The cold, canonical solve of one component; ``fixed``: others' work on each engine, replica-s/s."""
    return solve(snapshot, policies, fixed=fixed)
