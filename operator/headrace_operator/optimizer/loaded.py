"""A programme in the solver that grows: solve, price the pairs left out, add those that pay, solve again.

On the routing-weight path. Used by the warm model, which keeps it between ticks, and by the cold solve, which makes
its own. At the end no pair without a column prices out, so the optimum is that of all allowed pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.candidates import missing_pairs
from headrace_operator.optimizer.layout import Bools
from headrace_operator.optimizer.problem import Problem
from headrace_operator.optimizer.programme import Flows, Numbers, Shape, flows, grown, numbers, shape_of
from headrace_operator.optimizer.residuals import fault_of
from headrace_operator.optimizer.solver import LoadedProgramme
from headrace_operator.snapshot.curves import Floats

ROUNDS = 200  # each adds at least one pair; a handful is usual


class Loaded(NamedTuple):
    """A programme in the solver: its shape and numbers, which pairs have columns, the ratios and units it stands in."""

    shape: Shape
    numbers: Numbers
    candidates: Bools
    stays: Bools
    ratio: Floats
    unit: Floats
    first_pairs: int
    programme: LoadedProgramme


class Optimum(NamedTuple):
    """A checked optimum over all allowed pairs, and the programme as it stands after it."""

    flows: Flows
    objective: float
    loaded: Loaded


def load(problem: Problem, candidates: Bools, *, time_limit: float | None = None) -> Loaded:
    """The problem in a solver of its own, with columns for the candidates."""
    unit = np.where(problem.shed_work > 0.0, problem.shed_work, 1.0)
    stays = candidates & (problem.previous > 0.0)
    shape = shape_of(problem, candidates, stays, unit)
    values = numbers(problem, shape, unit)
    programme = LoadedProgramme(shape, values, time_limit=time_limit)
    ratio = problem.work / unit[:, None]
    return Loaded(shape, values, candidates, stays, ratio, unit, len(shape.pair_source), programme)


def refresh(loaded: Loaded, problem: Problem, unit: Floats) -> Loaded:
    """The same programme with today's numbers; pairs that were given weights since get their columns."""
    stays = problem.allowed & (problem.previous > 0.0) & ~loaded.stays
    loaded = loaded._replace(unit=unit)
    if stays.any():
        return _with_pairs(loaded, problem, stays & ~loaded.candidates, stays)
    values = numbers(problem, loaded.shape, unit)
    loaded.programme.push(values)
    return loaded._replace(numbers=values)


def optimum(loaded: Loaded, problem: Problem, tolerance: float = 0.0) -> Optimum | str:
    """The optimum over all allowed pairs, or the sentence that says why there is none.

    tolerance: the part of the objective by which the answer may be above it.
    """
    for _ in range(ROUNDS):
        answer = loaded.programme.run()
        fault = fault_of(answer, loaded.shape, loaded.numbers)
        if fault is not None:
            return fault
        found = flows(problem, loaded.shape, loaded.unit, answer.values, answer.row_duals, answer.column_duals)
        tolerated = tolerance * abs(answer.objective)
        missing = missing_pairs(problem, loaded.candidates, found.source_price, found.engine_price, tolerated)
        if not missing.any():
            return Optimum(found, answer.objective, loaded)
        loaded = _with_pairs(loaded, problem, missing, np.zeros_like(missing))
    return f"pairs still priced out after {ROUNDS} rounds"


def _with_pairs(loaded: Loaded, problem: Problem, moves: Bools, stays: Bools) -> Loaded:
    shape = grown(loaded.shape, moves, stays, loaded.ratio)
    values = numbers(problem, shape, loaded.unit)
    loaded.programme.grow(shape, values)
    return loaded._replace(
        shape=shape, numbers=values, candidates=loaded.candidates | moves, stays=loaded.stays | stays
    )
