"""Judgement of a split that someone else decided: its cost by the optimizer's own measure, and whether it can stand.

On the routing-weight path, pure. Used for the weights in force (does anything have to move?) and for the strategies
that set weights by rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.problem import Problem
from headrace_operator.optimizer.programme import LOAD_COLUMNS
from headrace_operator.snapshot.curves import Floats

ROUNDED = 2e-4  # of a source's demand: weights are integers of 10,000
WHOLE = 1e-3  # weights that sum to 1 within this shed nothing


class Judgement(NamedTuple):
    """cost: seconds of latency and prices per second. over: the engine that would pass C_j furthest, None if none."""

    cost: float
    over: int | None
    load: Floats


def cost_of(problem: Problem, flow: Floats, shed_cost: float) -> Judgement:
    """Cost of flows (requests/s, sources x engines) that move nothing, plus what shedding costs already.

    The rounding of the table's integers passes no limit: neither C_j, which shedding keeps, nor a soft one.
    """
    load = (flow * problem.work).sum(axis=0) + problem.fixed
    rounding = ROUNDED * np.where(flow > 0.0, problem.work * problem.demand[:, None], 0.0).sum(axis=0) + 1e-9
    over = load - problem.hard
    if problem.shedding and (over > rounding).any():
        return Judgement(np.inf, int(np.argmax(over - rounding)), load)
    for limit in (problem.hard, problem.soft):
        load = np.where((load > limit) & (load <= limit + rounding), limit, load)
    return Judgement(float((flow * problem.direct).sum()) + load_cost(problem, load) + shed_cost, None, load)


def load_cost(problem: Problem, load: Floats) -> float:
    """Sum over engines of the piecewise-linear cost of their loads, seconds per second."""
    engines = len(load)
    over = np.maximum(problem.hard - problem.soft, 0.0)
    widths = np.column_stack([problem.widths, over, np.full(engines, np.inf)])
    starts = np.column_stack([np.zeros(engines), np.cumsum(widths[:, : LOAD_COLUMNS - 1], axis=1)])
    filled = np.clip(load[:, None] - starts, 0.0, widths)
    prices = problem.prices
    slopes = np.column_stack([problem.slopes, np.full(engines, prices.overload), problem.backlog + prices.overflow])
    return float((filled * slopes).sum())


def current_flows(problem: Problem) -> tuple[Floats, float, str]:
    """Flows of the weights in force at today's demand, what their shedding costs, and why they can't stand.

    Weights that sum to less than 1 shed the rest, counted from the cheapest piece up.
    """
    if problem.lost[problem.served].any():
        return problem.previous, 0.0, "an engine that carried traffic is gone"
    if not problem.tabled[problem.served].all():
        return problem.previous, 0.0, "a source has no weights yet"
    total = problem.previous.sum(axis=1)
    whole = np.abs(total - 1.0) <= WHOLE
    weights = np.where(whole[:, None], problem.previous / np.where(total > 0.0, total, 1.0)[:, None], problem.previous)
    missing = np.where(whole | ~problem.served, 0.0, 1.0 - total)
    if missing.any() and not problem.shedding:
        return weights, 0.0, "the weights in force shed, and nothing has to be shed"
    return weights * problem.demand[:, None], _shed_cost(problem, missing), ""


def _shed_cost(problem: Problem, missing: Floats) -> float:
    """Price of shedding a share of each source, its cheapest pieces first."""
    left = missing.copy()
    price = problem.prices.shed[problem.piece_rank] * problem.piece_factor
    total = 0.0
    for piece in np.argsort(price, kind="stable") if missing.any() else ():
        source = problem.piece_source[piece]
        share = min(float(left[source]), float(problem.piece_share[piece]))
        left[source] -= share
        total += share * float(problem.demand[source] * problem.shed_work[source] * price[piece])
    return total
