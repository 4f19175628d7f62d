"""Candidates: which pairs get columns at first, and which are added because the prices ask for them.

On the routing-weight path, pure. A large fleet starts with each source's nearest engines and those it used. A short
list alone strands capacity, so a pair left out is added when it prices out: when its cost at the engine's price is
below what the source pays now. At the end no pair does, and the optimum is that of all pairs.
"""

from __future__ import annotations

import numpy as np

from headrace_operator.optimizer.layout import Bools
from headrace_operator.optimizer.problem import Problem
from headrace_operator.snapshot.curves import Floats

NEAREST = 20  # engines a source starts with
ADDED = 10  # pairs a source gets in one round
PRICE_TOLERANCE = 1e-7  # relative to what the source pays: rounding of duals, not a gain


def first_candidates(possible: Bools, direct: Floats, previous: Floats) -> Bools:
    """Each source's nearest engines by l0 (ties in the engines' order) and all it sends to now (sources x engines)."""
    if possible.shape[1] <= NEAREST:
        return possible.copy()
    ranked = np.argsort(np.where(possible, direct, np.inf), axis=1, kind="stable")[:, :NEAREST]
    near = np.zeros_like(possible)
    np.put_along_axis(near, ranked, values=True, axis=1)
    return possible & (near | (previous > 0.0))


def missing_pairs(
    problem: Problem, candidates: Bools, source_price: Floats, engine_price: Floats, tolerated: float = 0.0
) -> Bools:
    """Allowed pairs without a column, cheaper than what their source pays now; of each source the best few.

    tolerated: seconds per second that the optimum over all pairs may be below the one at hand. Lowering each
    source's price by its best gain makes the prices dual feasible, so demand x best gain bounds what is missed.
    """
    lacking = problem.allowed & ~candidates
    if not lacking.any():
        return lacking
    cost = problem.direct + problem.move_price + problem.work * engine_price[None, :]
    margin = PRICE_TOLERANCE * np.maximum(np.abs(source_price), 1e-3)
    gain = np.where(lacking, (source_price - margin)[:, None] - cost, 0.0)
    best_gain = np.maximum(gain.max(axis=1), 0.0)
    if float(problem.demand @ best_gain) <= tolerated:
        return np.zeros_like(lacking)
    paying = np.asarray(gain > 0.0, dtype=np.bool_)
    rows = np.flatnonzero(paying.sum(axis=1) > ADDED)
    if rows.size:
        best = np.argsort(-gain[rows], axis=1, kind="stable")[:, :ADDED]
        few = np.zeros((rows.size, gain.shape[1]), dtype=np.bool_)
        np.put_along_axis(few, best, values=True, axis=1)
        paying[rows] &= few
    return paying
