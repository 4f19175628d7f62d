"""Problem: one component's numbers as arrays, canonical and guarded. No names, no structs, no solver.

On the routing-weight path, pure. Rows are sources, columns engines, both in the layout's order. Whatever is not
finite or not in range is unknown and takes its safe value here, so that nothing after this line meets a NaN. Units:
requests/s, replica-seconds per second (work), seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headrace_operator.optimizer.layout import Bools, Ints, Layout
from headrace_operator.optimizer.prices import PIECE_FACTORS, PIECES, Prices, move_prices, order_prices
from headrace_operator.optimizer.readings import Readings
from headrace_operator.snapshot.curves import (
    BACKLOG_SECONDS,
    Floats,
    averaged_slopes,
    target_slopes,
)
from headrace_operator.snapshot.model import Snapshot, SourceDemand
from headrace_operator.snapshot.work import reference_work, residence, tokens, usable_work, work

LEAST_DEMAND = 0.01  # requests/s; every source has weights
MOST = 1e12


@dataclass(frozen=True, slots=True)
class Problem:
    """What is solved.

    Sources x engines: work (stated_work: NaN or infinite where unusable), round_trip, unloaded (T(0)/trim, without
    round trip), previous (fractions), move_price, allowed. Engines: hard C_j, factor c_j/C_j, effective c_j, soft
    (beyond it work costs P more), fixed (load of others), trim, reference_work, slopes and widths (engines x 32),
    backlog (slope beyond C_j). Sources: demand, shift (share that may move; infinite without the row), tabled (a table
    stands for it; one that refuses all has no previous). Shed pieces: piece_source, piece_rank, piece_share (of the
    source's demand), piece_factor.
    """

    demand: Floats
    tokens_in: Floats
    tokens_out: Floats
    work: Floats
    stated_work: Floats
    round_trip: Floats
    unloaded: Floats
    previous: Floats
    had_previous: Bools
    tabled: Bools
    lost: Bools
    move_price: Floats
    allowed: Bools
    shift: Floats
    hard: Floats
    factor: Floats
    effective: Floats
    soft: Floats
    fixed: Floats
    trim: Floats
    hit_share: Floats
    reference_work: Floats
    widths: Floats
    slopes: Floats
    backlog: Floats
    repaired: Bools
    piece_source: Ints
    piece_rank: Ints
    piece_share: Floats
    piece_factor: Floats
    ranks: int
    shedding: bool
    prices: Prices

    @property
    def served(self) -> Bools:
        """Sources that have an engine at all."""
        return np.asarray(self.allowed.any(axis=1), dtype=np.bool_)

    @property
    def shed_work(self) -> Floats:
        """w_i, the largest work of each source: what a shed request is priced by."""
        return np.asarray(np.where(self.allowed, self.work, 0.0).max(axis=1, initial=0.0), dtype=np.float64)

    @property
    def direct(self) -> Floats:
        """l0_ij: round trip plus unloaded latency (sources x engines)."""
        return self.round_trip + self.unloaded


def shedding_open(snapshot: Snapshot, policies: tuple[str, ...]) -> bool:
    """Whether the component may shed: an overload seen in two readings, or demand that is only declared."""
    if set(policies) & set(snapshot.shedding):
        return True
    origins = [demand.origin for demand in snapshot.demand if demand.policy in policies]
    return not any(origin in ("Measured", "Held") for origin in origins)


def build_problem(layout: Layout, readings: Readings, fixed: Mapping[str, float], *, shedding: bool) -> Problem:
    """The numbers of one component at one instant.

    fixed: engine id to load, replica-s/s, of policies outside the component; what isn't finite counts as none.
    """
    figures, state = layout.figures, readings.engines
    asked_in, asked_out = _amount(readings.input_tokens), _amount(readings.output_tokens)
    tokens_in, tokens_out = tokens(figures, asked_in, asked_out)
    raw = work(figures, tokens_in, tokens_out, state.hit_share)
    usable = usable_work(raw)
    allowed = layout.possible & usable & state.in_service[None, :]
    safe_work = np.where(usable, raw, 1.0)
    fresh = tokens_in * (1.0 - state.hit_share)
    unloaded = residence(figures, fresh, tokens_out, figures.ttft_unloaded, figures.tbot_unloaded) / state.trim
    previous, had_previous, lost = _previous(readings.previous, readings.previous_elsewhere, allowed)
    move_price = move_prices(layout.move_cost, readings.saving_since, readings.at, had_previous)
    reference = reference_work(figures, state.hit_share)
    reference = np.where(np.isfinite(reference) & (reference > 0.0), reference, _mean_work(safe_work, layout.possible))
    effective = state.hard * state.factor
    soft = np.fmin(effective, layout.target * state.hard)
    slopes, widths = _slopes(layout, soft, effective, reference, state.trim)
    pieces = shed_pieces(readings.demand)
    direct = readings.round_trip + unloaded + move_price
    steepest = float(slopes[allowed.any(axis=0)].max(initial=0.0))
    return Problem(
        demand=np.clip(np.where(np.isfinite(readings.rate), readings.rate, 0.0), LEAST_DEMAND, MOST),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        work=safe_work,
        stated_work=raw,
        round_trip=readings.round_trip,
        unloaded=unloaded,
        previous=previous,
        had_previous=had_previous,
        tabled=readings.tabled,
        lost=lost,
        move_price=move_price,
        allowed=allowed,
        shift=np.where(had_previous & ~lost, layout.shift, np.inf),
        hard=state.hard,
        factor=state.factor,
        effective=effective,
        soft=soft,
        fixed=np.minimum(state.hard, _amount(_by_engine(layout, fixed)) + state.background),
        trim=state.trim,
        hit_share=state.hit_share,
        reference_work=reference,
        widths=effective[:, None] * widths,
        slopes=slopes,
        backlog=BACKLOG_SECONDS / reference,
        repaired=figures.reference.bent,
        piece_source=pieces[0],
        piece_rank=pieces[1],
        piece_share=pieces[2],
        piece_factor=pieces[3],
        ranks=pieces[4],
        shedding=shedding,
        prices=order_prices(direct, safe_work, allowed, steepest, pieces[4]),
    )


def _amount(values: Floats) -> Floats:
    return np.clip(np.where(np.isfinite(values), values, 0.0), 0.0, MOST)


def _by_engine(layout: Layout, fixed: Mapping[str, float]) -> Floats:
    return np.array([fixed.get(engine, 0.0) for engine in layout.engines], dtype=np.float64)


def _mean_work(safe_work: Floats, possible: Bools) -> Floats:
    """Mean work over an engine's sources, 1 where it has none: the reference of an engine that states none."""
    count = possible.sum(axis=0)
    return np.where(count > 0, np.where(possible, safe_work, 0.0).sum(axis=0) / np.maximum(count, 1), 1.0)


def _previous(previous: Floats, elsewhere: Floats, allowed: Bools) -> tuple[Floats, Bools, Bools]:
    """Fractions that can stay, which sources had any, and which lost an engine; a sum above 1 is scaled to it."""
    stated = np.clip(np.where(np.isfinite(previous), previous, 0.0), 0.0, 1.0)
    total = stated.sum(axis=1) + elsewhere
    kept = np.where(allowed, stated, 0.0)
    lost = total - kept.sum(axis=1) > 1e-9
    return kept / np.maximum(total, 1.0)[:, None], total > 0.0, lost


def _slopes(layout: Layout, soft: Floats, effective: Floats, reference: Floats, trim: Floats) -> tuple[Floats, Floats]:
    """m_jk, and the segments' widths as fractions of c_j (engines x 32)."""
    bank = layout.figures.reference
    slopes, points = averaged_slopes(bank, reference, trim), bank.at
    bound = np.flatnonzero(np.isfinite(layout.target))
    if bound.size:
        points = points.copy()
        ends = np.where(effective > 0.0, soft / np.where(effective > 0.0, effective, 1.0), 1.0)[bound]
        points[bound] = np.minimum(bank.target_at[bound], ends[:, None])
        latency = _cut(layout, bound, ends)
        slopes[bound] = target_slopes(points[bound], latency, bank.unloaded[bound], reference[bound], trim[bound])
    return slopes, np.diff(points, axis=1)


def _cut(layout: Layout, engines: Ints, ends: Floats) -> Floats:
    """T at the target breakpoints of some engines, cut off at their ends."""
    bank, curves, out = layout.figures.reference, layout.figures.curves, layout.figures.reference_output
    last = np.array(
        [float(curves[e][0](end) + out[e] * curves[e][1](end)) for e, end in zip(engines, ends, strict=True)]
    )
    return np.where(bank.target_at[engines] < ends[:, None], bank.target_latency[engines], last[:, None])


def shed_pieces(demand: tuple[SourceDemand, ...]) -> tuple[Ints, Ints, Floats, Floats, int]:
    """Shed pieces in order of sources: source row, rank of the priority, share of demand, factor; number of ranks."""
    values = sorted({value for entry in demand for _, value, _ in entry.priorities})
    rank = {value: index for index, value in enumerate(values)}
    source, ranks, share = [], [], []
    for row, entry in enumerate(demand):
        for _, value, part in entry.priorities:
            source.append(row)
            ranks.append(rank[value])
            share.append(part if np.isfinite(part) and part > 0.0 else 0.0)
    shares = np.array(share, dtype=np.float64)
    rows = np.array(source, dtype=np.int64)
    total = np.zeros(len(demand))
    np.add.at(total, rows, shares)
    shares = np.where(total[rows] > 0.0, shares / np.where(total[rows] > 0.0, total[rows], 1.0), 1.0)
    return (
        np.repeat(rows, len(PIECES)),
        np.repeat(np.array(ranks, dtype=np.int64), len(PIECES)),
        (shares[:, None] * PIECES[None, :]).ravel(),
        np.tile(PIECE_FACTORS, len(rows)),
        len(values),
    )
