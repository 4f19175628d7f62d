"""Prices that no one measures: of moving traffic, of passing a soft limit, of shedding. Their order is the policy.

On the routing-weight path, pure. Latency is worth less than a soft limit, a soft limit less than any request, a
request of low priority less than one of high priority; every price is built from the instance so that no latency can
reach the next rank. Sources: the optimizer's design (movement, shed); constants in seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.layout import Bools
from headrace_operator.snapshot.curves import Floats

TURN_SECONDS = 30.0  # tau: between two requests of one key
TABLE_SECONDS = 600.0  # H: how long weights last
MOVE_HORIZON = 60.0  # a saving that lasted this long moves for nothing
PIECES: Floats = np.array([0.10, 0.15, 0.25, 0.50])  # widths of the shed pieces: up to 10, 25, 50, 100 % of demand
PIECE_FACTORS: Floats = np.array([1.0, 1.1, 1.2, 1.3])
LATENCY_FLOOR = 1e-3  # s; where nothing has a latency, order still needs a unit
MOST_DETOUR = 10.0  # of r in the shed price: keeps its digits
MOST_SPREAD = 1e3  # hardware a thousand times slower is no alternative that prices must respect
STEP_RANGE = 1e3  # highest over lowest shed price: beyond it duals lose their digits


class Prices(NamedTuple):
    """Seconds a unit of work. latency: L, no route costs more. overload: P. shed: M by rank, the lowest first.

    overflow: of load beyond C_j while shedding is closed, beside its backlog. shift: what passing maxShift costs: more
    than latency can save, less than passing a soft limit or shedding. spread: r, largest over smallest work of one
    source.
    """

    latency: float
    spread: float
    overload: float
    overflow: float
    shed: Floats
    shift: float


def move_prices(move_cost: Floats, since: Floats, at: float, moving: Bools) -> Floats:
    """gamma_ij (sources x engines, seconds a moved request), falling to 0 as a saving lasts.

    since: when each saving began, infinite where none stands. moving: sources with weights to move from.
    """
    persisted = np.clip((at - since) / MOVE_HORIZON, 0.0, 1.0)
    amortised = move_cost * TURN_SECONDS / TABLE_SECONDS
    return np.where(moving[:, None], amortised[:, None] * (1.0 - persisted), 0.0)


def order_prices(unloaded: Floats, work: Floats, allowed: Bools, steepest: float, ranks: int) -> Prices:
    """Prices of one component.

    unloaded: l0_ij + gamma_ij, seconds; work: w_ij; both sources x engines, read where ``allowed``. steepest: the
    largest m_jk up to the soft limit. ranks: priorities told apart.

    P = 2 r L. The lowest shed price is 2 r^3 (P + L); with alike hardware that is the design's 2 (P + L). Shedding must
    lose to any way of making room, and making room can take several moves, each to hardware on which the moved work is
    up to r times as long: with 2 (P + L) alone, demand that fits was shed, and interactive work before batch. Load
    beyond C_j costs as much at least. From one priority to the next prices at least double, and grow with r, so that
    none is shed that shedding a lower one elsewhere would save.
    """
    if not allowed.any():
        least = 6.0 * LATENCY_FLOOR
        return Prices(LATENCY_FLOOR, 1.0, 2.0 * LATENCY_FLOOR, least, np.full(max(ranks, 1), least), LATENCY_FLOOR)
    rows = allowed.any(axis=1)
    largest = np.where(allowed, work, 0.0).max(axis=1)[rows]
    smallest = np.where(allowed, work, np.inf).min(axis=1)[rows]
    spread = min(float((largest / smallest).max()), MOST_SPREAD)
    latency = float((np.maximum(unloaded, LATENCY_FLOOR) / work)[allowed].max()) + steepest
    overload = 2.0 * spread * latency
    lowest = 2.0 * min(spread, MOST_DETOUR) ** 3 * (overload + latency)
    step = max(2.0, 1.4 * spread)
    if ranks > 1:
        step = min(step, STEP_RANGE ** (1.0 / (ranks - 1)))
    shed = lowest * np.power(step, np.arange(max(ranks, 1), dtype=np.float64))
    return Prices(latency, spread, overload, spread * lowest, shed, latency)
