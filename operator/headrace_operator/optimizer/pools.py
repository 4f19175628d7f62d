"""Pools: equal engines solved as one and split by ready replicas, so that ties never decide a published weight.

On the routing-weight path, pure. Two engines are equal when no number of the problem tells them apart per replica.
A linear programme with ties ends at any of many vertices; a pool leaves it nothing to choose.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.layout import Ints
from headrace_operator.optimizer.problem import Problem
from headrace_operator.snapshot.curves import Floats


class Pools(NamedTuple):
    """engines: the layout's columns that are pooled; pool: the pool of each of them; share: its part of the pool."""

    engines: Ints
    pool: Ints
    share: Floats


def pooled(problem: Problem) -> tuple[Problem, Pools]:
    """The problem with one column a pool, in order of their first engines, without engines no source may use."""
    engines = np.flatnonzero(problem.allowed.any(axis=0))
    numbers: dict[Hashable, int] = {}
    pool = np.array(
        [numbers.setdefault(_likeness(problem, int(engine)), len(numbers)) for engine in engines], dtype=np.int64
    )
    first = np.array([engines[np.flatnonzero(pool == number)[0]] for number in range(len(numbers))], dtype=np.int64)

    def summed(values: Floats) -> Floats:
        total = np.zeros((len(numbers), *values.shape[1:]))
        np.add.at(total, pool, values[engines])
        return total

    hard = summed(problem.hard)
    cheapest = np.full((len(problem.demand), len(numbers)), np.inf)
    for engine, number in zip(engines, pool, strict=True):
        cheapest[:, number] = np.minimum(cheapest[:, number], problem.move_price[:, engine])
    together = replace(
        problem,
        tokens_in=problem.tokens_in[:, first],
        tokens_out=problem.tokens_out[:, first],
        work=problem.work[:, first],
        stated_work=problem.stated_work[:, first],
        round_trip=problem.round_trip[:, first],
        unloaded=problem.unloaded[:, first],
        previous=summed(problem.previous.T).T,
        move_price=cheapest,
        allowed=problem.allowed[:, first],
        hard=hard,
        factor=problem.factor[first],
        effective=summed(problem.effective),
        soft=summed(problem.soft),
        fixed=summed(problem.fixed),
        trim=problem.trim[first],
        hit_share=problem.hit_share[first],
        reference_work=problem.reference_work[first],
        widths=summed(problem.widths),
        slopes=problem.slopes[first],
        backlog=problem.backlog[first],
        repaired=problem.repaired[first],
    )
    return together, Pools(engines, pool, problem.hard[engines] / hard[pool])


def _likeness(problem: Problem, engine: int) -> Hashable:
    """All that tells an engine from another, per replica. Other policies' load is rounded: it is a sum of floats."""
    pair = problem.allowed[:, engine]
    columns = (problem.work, problem.round_trip, problem.unloaded, problem.tokens_in, problem.tokens_out)
    hard = problem.hard[engine]
    return (
        pair.tobytes(),
        *(column[:, engine][pair].tobytes() for column in columns),
        problem.slopes[engine].tobytes(),
        float(problem.factor[engine]),
        float(np.round(problem.soft[engine] / hard, 12)),
        float(np.round(problem.fixed[engine] / hard, 9)),
        float(problem.trim[engine]),
        float(problem.hit_share[engine]),
        float(problem.reference_work[engine]),
    )
