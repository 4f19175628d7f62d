"""Evaluation: the pairs that a strategy may choose from, and what its choice amounts to.

On the routing-weight path, pure, no solver. Strategies that set weights by rule get the same loads, utilisation and
in-flight counts as the optimizer's own answer, with prices of 0: a rule has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.assemble import Outcome, assembled, ineligible, shed_by_priority
from headrace_operator.optimizer.cold import NO_FIXED
from headrace_operator.optimizer.judge import load_cost
from headrace_operator.optimizer.layout import Layout, build_layout
from headrace_operator.optimizer.problem import Problem, build_problem
from headrace_operator.optimizer.readings import Reader, Readings
from headrace_operator.optimizer.solution import IneligiblePair, Solution
from headrace_operator.snapshot.curves import Floats
from headrace_operator.snapshot.model import Snapshot, SourceKey


class EligiblePair(NamedTuple):
    """One usable pair. work: w_ij, replica-seconds a request; round_trip, unloaded: seconds (l0 is their sum).

    capacity, effective: C_j and c_j of the engine, replica-seconds per second.
    """

    source: SourceKey
    engine: str
    work: float
    round_trip: float
    unloaded: float
    capacity: float
    effective: float


def _read(
    snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]
) -> tuple[Layout, Readings, Problem]:
    layout = build_layout(snapshot, policies)
    readings = Reader(layout).read(snapshot)
    return layout, readings, build_problem(layout, readings, fixed, shedding=False)


def eligible_pairs(snapshot: Snapshot, policies: tuple[str, ...]) -> tuple[EligiblePair, ...]:
    """All usable pairs of the policies' sources, sorted by source and engine."""
    layout, _, problem = _read(snapshot, policies, NO_FIXED)
    return tuple(
        EligiblePair(
            source=layout.sources[row],
            engine=layout.engines[column],
            work=float(problem.work[row, column]),
            round_trip=float(problem.round_trip[row, column]),
            unloaded=float(problem.unloaded[row, column]),
            capacity=float(problem.hard[column]),
            effective=float(problem.effective[column]),
        )
        for row, column in zip(*(index.tolist() for index in np.nonzero(problem.allowed)), strict=True)
    )


def ineligible_pairs(snapshot: Snapshot, policies: tuple[str, ...]) -> tuple[IneligiblePair, ...]:
    """All other pairs within the policies' namespaces, each with its rule."""
    layout, _, problem = _read(snapshot, policies, NO_FIXED)
    return ineligible(snapshot, layout, problem)


def evaluate(
    snapshot: Snapshot,
    policies: tuple[str, ...],
    flows: Mapping[tuple[SourceKey, str], float],
    *,
    fixed: Mapping[str, float] = NO_FIXED,
) -> Solution:
    """The Solution of flows set by rule (requests/s by source and engine id), status "Rule", prices 0.

    Demand that isn't routed counts as shed, the lowest priority first. The objective is the optimizer's: latency
    and the prices of soft limits, without shedding. Flows on ineligible pairs are left out and named in the message.
    """
    layout, readings, problem = _read(snapshot, policies, fixed)
    flow, ignored = _placed(layout, problem, flows)
    load = (flow * problem.work).sum(axis=0) + problem.fixed
    moved = np.maximum(flow - problem.previous * problem.demand[:, None], 0.0)
    sources, engines = flow.shape
    outcome = Outcome(
        flow=flow,
        moved=np.where(problem.had_previous[:, None], moved, 0.0),
        shed=shed_by_priority(problem, _unrouted(problem, flow), readings.demand),
        source_price=np.zeros(sources),
        engine_price=np.zeros(engines),
        marginal=np.zeros(sources),
        reduced_cost=np.zeros(flow.shape),
        saving=np.zeros(flow.shape),
    )
    return assembled(
        snapshot,
        layout,
        problem,
        readings.demand,
        outcome,
        status="Rule",
        objective=float((flow * problem.direct).sum()) + load_cost(problem, load),
        message=f"not eligible, left out: {', '.join(ignored)}" if ignored else "",
    )


def _placed(layout: Layout, problem: Problem, flows: Mapping[tuple[SourceKey, str], float]) -> tuple[Floats, list[str]]:
    rows = {key: row for row, key in enumerate(layout.sources)}
    columns = {name: column for column, name in enumerate(layout.engines)}
    flow = np.zeros(problem.work.shape)
    ignored = []
    for (source, engine), amount in sorted(flows.items()):
        row, column = rows.get(source), columns.get(engine)
        if row is None or column is None or not problem.allowed[row, column] or not 0.0 <= amount < np.inf:
            ignored.append(f"{source.frontend} to {engine}")
        else:
            flow[row, column] = amount
    return flow, ignored


def _unrouted(problem: Problem, flow: Floats) -> Floats:
    """Requests/s shed by piece: what is missing from each source's demand, its lowest priority first."""
    missing = np.maximum(problem.demand - flow.sum(axis=1), 0.0)
    missing = np.where(missing > 1e-9 * problem.demand, missing, 0.0)
    shed = np.zeros(len(problem.piece_source))
    for piece in np.lexsort((problem.piece_rank, problem.piece_source)):
        source = problem.piece_source[piece]
        shed[piece] = min(float(missing[source]), float(problem.piece_share[piece] * problem.demand[source]))
        missing[source] -= shed[piece]
    return shed
