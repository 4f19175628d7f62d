"""The warm model: every tick, does anything have to move? It decides that and nothing else; nothing of it is published.

On the routing-weight path, off the event loop. It keeps the declared programme, its basis and the positions of every
number between ticks, and pushes arrays. With ties it may end at another vertex than the published solve; only its
objective is used. A failed engine keeps its columns, with bounds of 0. Not to be shared between threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.assemble import priced
from headrace_operator.optimizer.candidates import first_candidates
from headrace_operator.optimizer.cold import NO_FIXED
from headrace_operator.optimizer.judge import cost_of, current_flows
from headrace_operator.optimizer.layout import Bools, Layout, build_layout
from headrace_operator.optimizer.loaded import Loaded, load, optimum, refresh
from headrace_operator.optimizer.problem import Problem, build_problem, shedding_open
from headrace_operator.optimizer.readings import Reader
from headrace_operator.optimizer.savings import LEAST_SAVING, standing_savings
from headrace_operator.snapshot.curves import Floats
from headrace_operator.snapshot.eligibility import bare_name
from headrace_operator.snapshot.model import SavingSince, Snapshot, SourceKey

RATIO_DRIFT = 0.02  # of w_ij/w_i; beyond it the matrix is built anew
TOLERATED = 0.05  # of the deadband: how far above the optimum the warm answer may be
LONGEST = 4  # the programme is built anew when it has grown to this many times its first pairs


class Verdict(NamedTuple):
    """Whether the weights in force must move, and the two costs (seconds per second) that say so.

    objective_current is infinite where the weights in force can't stand. overloaded: some engine's load, as it would
    be now, passes C_j (only while shedding is closed). savings: what the next snapshot must hold for these sources.
    """

    moves: bool
    objective_current: float
    objective_new: float
    why: str
    overloaded: bool = False
    savings: tuple[SavingSince, ...] = ()


class _Standing(NamedTuple):
    """What is kept between ticks for one layout."""

    layout: Layout
    reader: Reader


class WarmModel:
    """One component's persistent programme."""

    def __init__(self) -> None:
        self._standing: _Standing | None = None
        self._loaded: Loaded | None = None

    def assess(
        self, snapshot: Snapshot, policies: tuple[str, ...], *, fixed: Mapping[str, float] = NO_FIXED
    ) -> Verdict:
        """Whether anything moves: the weights in force can't stand, or are dearer than the best by the deadband."""
        problem = self._read(snapshot, policies, fixed)
        if not problem.allowed.any():
            return Verdict(moves=False, objective_current=0.0, objective_new=0.0, why="no eligible engine")
        deadband = _deadband(snapshot, policies)
        found = optimum(self._fitting(problem), problem, TOLERATED * deadband)
        self._loaded = None if isinstance(found, str) else found.loaded
        if isinstance(found, str):
            return Verdict(moves=True, objective_current=np.nan, objective_new=np.nan, why=found)
        loads = (found.flows.flow * problem.work).sum(axis=0) + problem.fixed
        over = bool((loads > problem.hard * (1.0 + 1e-9) + 1e-9).any())
        engines, sources = self._names()
        verdict = _compared(problem, found.objective, deadband, engines)
        rows, columns = np.nonzero(priced(problem, found.flows)[1] > LEAST_SAVING)
        pairs = zip((sources[row] for row in rows.tolist()), (engines[at] for at in columns.tolist()), strict=True)
        return verdict._replace(overloaded=over, savings=standing_savings(snapshot, pairs))

    @property
    def candidates(self) -> Bools:
        """Which pairs have columns at the moment (sources x engines)."""
        assert self._loaded is not None
        return self._loaded.candidates

    def _names(self) -> tuple[tuple[str, ...], tuple[SourceKey, ...]]:
        assert self._standing is not None
        return self._standing.layout.engines, self._standing.layout.sources

    def _read(self, snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Problem:
        standing = self._standing
        if standing is None or not standing.layout.holds(snapshot, policies):
            layout = build_layout(snapshot, policies)
            standing = self._standing = _Standing(layout, Reader(layout))
            self._loaded = None
        readings = standing.reader.read(snapshot)
        return build_problem(standing.layout, readings, fixed, shedding=shedding_open(snapshot, policies))

    def _fitting(self, problem: Problem) -> Loaded:
        """The loaded programme with today's numbers, built anew when ratios drifted or it has grown too long."""
        loaded = self._loaded
        if loaded is not None and len(loaded.shape.pair_source) <= LONGEST * loaded.first_pairs:
            unit = _units(problem, loaded.ratio)
            drift = np.abs(problem.work / (unit[:, None] * loaded.ratio) - 1.0)[problem.allowed].max(initial=0.0)
            if drift <= RATIO_DRIFT and np.array_equal(loaded.shape.piece_source, problem.piece_source):
                return refresh(loaded, problem, unit)
        return load(problem, first_candidates(problem.allowed, problem.direct, problem.previous))


def _units(problem: Problem, ratio: Floats) -> Floats:
    """The unit of each source that fits its works to the ratios in the matrix best."""
    allowed = problem.allowed
    fit = np.where(allowed, problem.work / ratio, 0.0).sum(axis=1) / np.maximum(allowed.sum(axis=1), 1)
    return np.where(fit > 0.0, fit, 1.0)


def _deadband(snapshot: Snapshot, policies: tuple[str, ...]) -> float:
    """The smallest deadband of the component's policies, as a fraction of the objective."""
    names = set(policies)
    return (
        min((policy.spec.objective.deadband_permille for policy in snapshot.policies if policy.id in names), default=0)
        / 1000.0
    )


def _compared(problem: Problem, best: float, deadband: float, engines: tuple[str, ...]) -> Verdict:
    current, shed_cost, fault = current_flows(problem)
    if fault:
        return Verdict(moves=True, objective_current=np.inf, objective_new=best, why=fault)
    judged = cost_of(problem, current, shed_cost)
    if judged.over is not None:
        load, hard = judged.load[judged.over], problem.hard[judged.over]
        why = f"the weights in force put {load / hard:.1%} of its capacity on {bare_name(engines[judged.over])}"
        return Verdict(moves=True, objective_current=np.inf, objective_new=best, why=why)
    excess = judged.cost - best
    moves = excess > deadband * abs(best) and excess > 1e-9 * max(abs(best), 1e-6)
    share = excess / best if best > 0.0 else 0.0
    return Verdict(
        moves=bool(moves),
        objective_current=judged.cost,
        objective_new=best,
        why=f"the weights in force cost {share:.2%} more than the best; the deadband is {deadband:.1%}",
    )
