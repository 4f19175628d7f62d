"""Programme: the linear programme of a problem as arrays; the only place that knows what a row or a column means.

On the routing-weight path, pure, no solver. The unknowns are flows of work, y = unit x (unit: about w_i), so that a
change of tokens touches costs and right-hand sides only. Columns: s (32 segments of load an engine, one up to C_j,
one beyond), z (shed pieces), e (a source's flow beyond maxShift), then pair columns, which may grow: "stay" (a_ij,
up to the previous share) and "move" (b_ij). Rows: balance of each source, load of each engine, shift of each source.

minimise  sum (l0 + gamma) b + sum l0 a + sum m s + sum M z + sum L e
  balance  sum_j (a + b) + sum z = d      load  sum_i w (a + b) - sum_k s = -fixed      shift  sum_j b - e <= maxShift d

maxShift yields at the price L: more than latency can ever save, less than a soft limit or a request. So it is left
where keeping it would shed or pass c_j, only as far as that needs, and the programme can't be infeasible by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.layout import Bools, Ints
from headrace_operator.optimizer.problem import Problem
from headrace_operator.snapshot.curves import SEGMENTS, Floats

LOAD_COLUMNS = SEGMENTS + 2


class Shape(NamedTuple):
    """What is declared to the solver: sizes, and the pair columns with their ratios w_ij/unit_i."""

    sources: int
    engines: int
    piece_source: Ints
    pair_source: Ints
    pair_engine: Ints
    pair_stays: Bools
    ratio: Floats

    @property
    def first_pair(self) -> int:
        """Columns before the pair columns."""
        return self.engines * LOAD_COLUMNS + len(self.piece_source) + self.sources

    @property
    def columns(self) -> int:
        """All columns."""
        return self.first_pair + len(self.pair_source)

    @property
    def rows(self) -> int:
        """All rows."""
        return 2 * self.sources + self.engines


class Numbers(NamedTuple):
    """What changes from tick to tick: costs, bounds of columns (lower ones are 0), bounds of rows."""

    cost: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats


class Entries(NamedTuple):
    """Non-zeros of the matrix: row, column, value."""

    row: Ints
    column: Ints
    value: Floats


def shape_of(problem: Problem, pairs: Bools, stays: Bools, unit: Floats) -> Shape:
    """The shape with a move column for each of ``pairs``, a stay column for each of ``stays`` (both masks)."""
    shape = Shape(
        sources=len(problem.demand),
        engines=len(problem.hard),
        piece_source=problem.piece_source,
        pair_source=np.zeros(0, dtype=np.int64),
        pair_engine=np.zeros(0, dtype=np.int64),
        pair_stays=np.zeros(0, dtype=np.bool_),
        ratio=np.zeros(0),
    )
    return grown(shape, pairs, stays, problem.work / unit[:, None])


def grown(shape: Shape, pairs: Bools, stays: Bools, ratio: Floats) -> Shape:
    """The shape with further pair columns behind those it has."""
    move_source, move_engine = np.nonzero(pairs)
    stay_source, stay_engine = np.nonzero(stays)
    source = np.concatenate([move_source, stay_source])
    engine = np.concatenate([move_engine, stay_engine])
    return shape._replace(
        pair_source=np.concatenate([shape.pair_source, source]),
        pair_engine=np.concatenate([shape.pair_engine, engine]),
        pair_stays=np.concatenate([shape.pair_stays, np.arange(len(source)) >= len(move_source)]),
        ratio=np.concatenate([shape.ratio, ratio[source, engine]]),
    )


def base_entries(shape: Shape) -> Entries:
    """Non-zeros of the columns before the pairs: s in its engine's load, z in its source's balance, e in its shift."""
    load = np.arange(shape.engines * LOAD_COLUMNS)
    pieces = np.arange(len(shape.piece_source))
    beyond = np.arange(shape.sources)
    return Entries(
        row=np.concatenate(
            [shape.sources + load // LOAD_COLUMNS, shape.piece_source, shape.sources + shape.engines + beyond]
        ),
        column=np.concatenate([load, len(load) + pieces, len(load) + len(pieces) + beyond]),
        value=np.concatenate([-np.ones(len(load)), np.ones(len(pieces)), -np.ones(shape.sources)]),
    )


def pair_entries(shape: Shape, start: int = 0) -> Entries:
    """Non-zeros of the pair columns from the ``start``-th on, ordered by column: balance, load, and shift for moves."""
    source, engine = shape.pair_source[start:], shape.pair_engine[start:]
    column = shape.first_pair + start + np.arange(len(source))
    moves = ~shape.pair_stays[start:]
    row = np.concatenate([source, shape.sources + engine, (shape.sources + shape.engines + source)[moves]])
    at = np.concatenate([column, column, column[moves]])
    value = np.concatenate([np.ones(len(source)), shape.ratio[start:], np.ones(int(moves.sum()))])
    order = np.lexsort((row, at))
    return Entries(row[order], at[order], value[order])


def numbers(problem: Problem, shape: Shape, unit: Floats) -> Numbers:
    """Costs and bounds of the programme. A source without an engine is left out: its demand is 0 here."""
    prices = problem.prices
    demand = np.where(problem.served, problem.demand, 0.0) * unit
    source, engine = shape.pair_source, shape.pair_engine
    moved = np.where(shape.pair_stays, 0.0, problem.move_price[source, engine])
    open_pair = problem.allowed[source, engine]
    stay_limit = problem.previous[source, engine] * demand[source]
    move_limit = np.where(open_pair, np.inf, 0.0)
    shed_cost = (
        prices.shed[problem.piece_rank] * problem.piece_factor * (problem.shed_work / unit)[problem.piece_source]
    )
    shed_limit = problem.piece_share * demand[problem.piece_source] if problem.shedding else np.zeros(len(shed_cost))
    beyond = np.full((shape.engines, 1), 0.0 if problem.shedding else np.inf)
    load_cost = np.column_stack(
        [problem.slopes, np.full(shape.engines, prices.overload), problem.backlog + prices.overflow]
    )
    load_limit = np.column_stack([problem.widths, np.maximum(problem.hard - problem.soft, 0.0), beyond])
    bounded = np.isfinite(problem.shift)
    shift = np.where(bounded, np.where(bounded, problem.shift, 0.0) * demand, np.inf)
    return Numbers(
        cost=np.concatenate(
            [
                load_cost.ravel(),
                shed_cost,
                prices.shift * problem.shed_work / unit,
                (problem.direct[source, engine] + moved) / unit[source],
            ]
        ),
        upper=np.concatenate(
            [
                load_limit.ravel(),
                shed_limit,
                np.full(shape.sources, np.inf),
                np.where(shape.pair_stays, stay_limit, move_limit),
            ]
        ),
        row_lower=np.concatenate([demand, -problem.fixed, np.full(shape.sources, -np.inf)]),
        row_upper=np.concatenate([demand, -problem.fixed, shift]),
    )


class Flows(NamedTuple):
    """An answer in the problem's terms. flow, moved: requests/s (sources x engines); shed: requests/s by piece.

    source_price: lambda_i, seconds a request; engine_price: pi_j, seconds a replica-second; marginal: seconds that one
    more request/s costs.
    """

    flow: Floats
    moved: Floats
    shed: Floats
    source_price: Floats
    engine_price: Floats
    marginal: Floats


def flows(
    problem: Problem, shape: Shape, unit: Floats, values: Floats, row_duals: Floats, column_duals: Floats
) -> Flows:
    """Reads a solver's answer. Duals are those of a minimisation: change of the objective by right-hand side."""
    source, engine = shape.pair_source, shape.pair_engine
    work = np.maximum(values[shape.first_pair :], 0.0)
    flow = np.zeros((shape.sources, shape.engines))
    np.add.at(flow, (source, engine), work)
    flow /= unit[:, None]
    moved = np.zeros_like(flow)
    np.add.at(moved, (source[~shape.pair_stays], engine[~shape.pair_stays]), work[~shape.pair_stays])
    first_piece = shape.engines * LOAD_COLUMNS
    pieces = slice(first_piece, first_piece + len(shape.piece_source))
    shed = np.maximum(values[pieces], 0.0) / unit[shape.piece_source]
    price = row_duals[: shape.sources]
    return Flows(
        flow=flow,
        moved=moved / unit[:, None],
        shed=shed,
        source_price=price * unit,
        engine_price=engine_prices(problem, shape, row_duals, values),
        marginal=unit * (price + _growth(problem, shape, row_duals, column_duals, pieces)),
    )


def engine_prices(problem: Problem, shape: Shape, row_duals: Floats, values: Floats) -> Floats:
    """pi_j from the load rows; an engine without load costs its first slope, where the dual alone could be lower."""
    price = -row_duals[shape.sources : shape.sources + shape.engines]
    load = values[: shape.engines * LOAD_COLUMNS].reshape(shape.engines, LOAD_COLUMNS)
    idle = load.sum(axis=1) <= 0.0
    first = np.where(problem.soft > 0.0, problem.slopes[:, 0], problem.prices.overload)
    return np.asarray(np.where(idle, np.maximum(price, first), price), dtype=np.float64)


def _growth(problem: Problem, shape: Shape, row_duals: Floats, column_duals: Floats, pieces: slice) -> Floats:
    """What a source's further unit of demand loosens beside its balance: stay and piece bounds, the shift row."""
    gain = np.zeros(shape.sources)
    stays = shape.pair_stays
    at = shape.pair_source[stays], shape.pair_engine[stays]
    pair_duals = column_duals[shape.first_pair :]
    np.add.at(gain, at[0], problem.previous[at] * np.minimum(pair_duals[stays], 0.0))
    if problem.shedding:
        np.add.at(gain, shape.piece_source, problem.piece_share * np.minimum(column_duals[pieces], 0.0))
    shift_duals = row_duals[shape.sources + shape.engines :]
    gain += np.where(np.isfinite(problem.shift), problem.shift, 0.0) * np.minimum(shift_duals, 0.0)
    return gain
