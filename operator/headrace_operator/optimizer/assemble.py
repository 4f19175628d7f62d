"""Assembly: flows and prices of a problem as the Solution that people, tables and routers read.

On the routing-weight path, pure. The one place where arrays get names again. Flows are cleaned of rounding and scaled
so that routed plus shed is the demand exactly as solved; in-flight counts follow from Little's law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.layout import Layout, sorted_engines
from headrace_operator.optimizer.pools import Pools
from headrace_operator.optimizer.problem import Problem
from headrace_operator.optimizer.programme import Flows
from headrace_operator.optimizer.solution import (
    EngineResult,
    IneligiblePair,
    RouteResult,
    Solution,
    SourceResult,
    Status,
)
from headrace_operator.snapshot.curves import Floats
from headrace_operator.snapshot.eligibility import capacity_exclusion, service_exclusion
from headrace_operator.snapshot.model import Snapshot, SourceDemand
from headrace_operator.snapshot.work import first_token

NOTHING = 1e-9  # share of a source's demand below which a flow is rounding


class Outcome(NamedTuple):
    """A decided split in the layout's terms, requests/s and seconds, sources x engines where two-dimensional.

    shed: by source and priority (rank in the source's own list). marginal: NaN where one more request would be shed.
    """

    flow: Floats
    moved: Floats
    shed: Sequence[tuple[float, ...]]
    source_price: Floats
    engine_price: Floats
    marginal: Floats
    reduced_cost: Floats
    saving: Floats


def cleaned(problem: Problem, flows: Flows) -> Flows:
    """Flows and shed without rounding, each source's sum scaled to its demand."""
    least = NOTHING * problem.demand
    flow = np.where(flows.flow > least[:, None], flows.flow, 0.0)
    shed = np.where(flows.shed > least[problem.piece_source], flows.shed, 0.0)
    total = flow.sum(axis=1) + np.bincount(problem.piece_source, shed, len(problem.demand))
    scale = np.where(total > 0.0, problem.demand / np.where(total > 0.0, total, 1.0), 1.0)
    return flows._replace(
        flow=flow * scale[:, None],
        moved=np.where(problem.had_previous[:, None], np.minimum(flows.moved, flow) * scale[:, None], 0.0),
        shed=shed * scale[problem.piece_source],
    )


def shed_by_priority(problem: Problem, shed: Floats, demand: Sequence[SourceDemand]) -> list[tuple[float, ...]]:
    """Requests/s shed of each source's priorities, in their order; a source without an engine sheds all."""
    per_piece = shed.reshape(-1, 4).sum(axis=1)
    served = problem.served
    result, start = [], 0
    for row, entry in enumerate(demand):
        count = len(entry.priorities)
        amounts = per_piece[start : start + count]
        if not served[row]:
            amounts = problem.piece_share.reshape(-1, 4).sum(axis=1)[start : start + count] * problem.demand[row]
        result.append(tuple(float(amount) for amount in amounts))
        start += count
    return result


def priced(problem: Problem, flows: Flows) -> tuple[Floats, Floats, Floats]:
    """Reduced costs and savings (sources x engines), and marginals with NaN where the next request would be shed."""
    gross = problem.direct + problem.work * flows.engine_price[None, :]
    reduced = np.maximum(gross - flows.source_price[:, None], 0.0)
    dearest = np.where(flows.flow > 0.0, gross, -np.inf).max(axis=1, initial=-np.inf)
    saving = np.where(np.isfinite(dearest)[:, None], np.maximum(dearest[:, None] - gross, 0.0), 0.0)
    least_work = np.where(problem.allowed, problem.work, np.inf).min(axis=1, initial=np.inf)
    shed_from = 0.5 * problem.prices.shed[0] * least_work
    refused = problem.shedding & (flows.marginal >= shed_from) | ~problem.served
    return reduced, saving, np.where(refused, np.nan, flows.marginal)


def unpooled(
    problem: Problem, pools: Pools, together: Problem, flows: Flows, demand: Sequence[SourceDemand]
) -> Outcome:
    """The pooled answer in the layout's engines: flows by ready replicas, prices alike."""
    reduced, saving, marginal = priced(together, flows)

    def spread(values: Floats, share: Floats | float) -> Floats:
        wide = np.zeros(problem.work.shape)
        wide[:, pools.engines] = values[:, pools.pool] * share
        return wide

    engine_price = np.zeros(problem.work.shape[1])
    engine_price[pools.engines] = flows.engine_price[pools.pool]
    return Outcome(
        flow=spread(flows.flow, pools.share[None, :]),
        moved=spread(flows.moved, pools.share[None, :]),
        shed=shed_by_priority(together, flows.shed, demand),
        source_price=flows.source_price,
        engine_price=engine_price,
        marginal=marginal,
        reduced_cost=spread(reduced, 1.0),
        saving=spread(saving, 1.0),
    )


def assembled(
    snapshot: Snapshot,
    layout: Layout,
    problem: Problem,
    demand: Sequence[SourceDemand],
    outcome: Outcome,
    *,
    status: Status,
    objective: float,
    message: str = "",
) -> Solution:
    """The Solution of an outcome: every eligible pair is a route, every other pair names its rule."""
    return Solution(
        status=status,
        objective=objective,
        sources=_sources(layout, problem, demand, outcome),
        routes=_routes(layout, problem, outcome),
        engines=_engines(layout, problem, outcome.flow, outcome.engine_price),
        ineligible=ineligible(snapshot, layout, problem),
        message=message,
        shedding_open=problem.shedding,
    )


def _sources(
    layout: Layout, problem: Problem, demand: Sequence[SourceDemand], outcome: Outcome
) -> tuple[SourceResult, ...]:
    return tuple(
        SourceResult(
            source=key,
            demand=float(problem.demand[row]),
            shed=tuple((name, amount) for (name, _, _), amount in zip(entry.priorities, amounts, strict=True)),
            price=float(outcome.source_price[row]),
            marginal=None if np.isnan(outcome.marginal[row]) else float(outcome.marginal[row]),
        )
        for row, (key, entry, amounts) in enumerate(zip(layout.sources, demand, outcome.shed, strict=True))
    )


def _routes(layout: Layout, problem: Problem, outcome: Outcome) -> tuple[RouteResult, ...]:
    source, engine = np.nonzero(problem.allowed)
    columns = (
        outcome.flow,
        problem.previous,
        problem.work,
        problem.direct,
        problem.round_trip,
        outcome.reduced_cost,
        problem.move_price,
        outcome.moved,
        outcome.saving,
    )
    values = (column[source, engine].tolist() for column in columns)
    return tuple(
        RouteResult(
            source=layout.sources[row],
            engine=layout.engines[column],
            flow=flow,
            previous=previous,
            work=work,
            unloaded=unloaded,
            round_trip=round_trip,
            reduced_cost=reduced,
            move_price=move,
            moved=moved,
            saving=saving,
        )
        for row, column, flow, previous, work, unloaded, round_trip, reduced, move, moved, saving in zip(
            source.tolist(), engine.tolist(), *values, strict=True
        )
    )


def _engines(layout: Layout, problem: Problem, flow: Floats, price: Floats) -> tuple[EngineResult, ...]:
    ours = (flow * problem.work).sum(axis=0)
    requests = flow.sum(axis=0)
    load = ours + problem.fixed
    first, decode = _stay(layout, problem, load)
    in_flight = _in_flight(layout, flow * (problem.round_trip + first + decode))
    idle = _idle_stay(layout, problem, load)
    share = flow / np.where(requests > 0.0, requests, 1.0)
    ttft = np.where(requests > 0.0, (share * first).sum(axis=0), idle[0])
    after = np.where(requests > 0.0, (share * decode).sum(axis=0), idle[1])
    return tuple(
        EngineResult(
            engine=layout.engines[column],
            load=float(load[column]),
            capacity=float(problem.hard[column]),
            effective=float(problem.effective[column]),
            price=float(price[column]),
            mean_work=float(
                ours[column] / requests[column] if requests[column] > 0.0 else problem.reference_work[column]
            ),
            in_flight=in_flight[column],
            hull_repaired=bool(problem.repaired[column]),
            fixed=float(problem.fixed[column]),
            soft=float(problem.soft[column]),
            ttft=float(ttft[column]),
            decode=float(after[column]),
        )
        for column in np.flatnonzero(problem.allowed.any(axis=0)).tolist()
    )


def _profile_at(layout: Layout, problem: Problem, load: Floats) -> tuple[Floats, Floats]:
    """TTFT and TBOT of the engines' profiles at their load; an engine whose c_j is 0 counts as full."""
    effective = problem.effective
    at = np.where(effective > 0.0, load / np.where(effective > 0.0, effective, 1.0), 1.0)
    pairs = list(zip(layout.figures.curves, at, strict=True))
    return (
        np.array([float(ttft(utilisation)) for (ttft, _), utilisation in pairs]),
        np.array([float(tbot(utilisation)) for (_, tbot), utilisation in pairs]),
    )


def _stay(layout: Layout, problem: Problem, load: Floats) -> tuple[Floats, Floats]:
    """Seconds to the first token and after it (sources x engines) at the engines' load."""
    ttft, tbot = _profile_at(layout, problem, load)
    fresh = problem.tokens_in * (1.0 - problem.hit_share)
    return first_token(layout.figures, fresh, ttft) / problem.trim, problem.tokens_out * tbot / problem.trim


def _idle_stay(layout: Layout, problem: Problem, load: Floats) -> tuple[Floats, Floats]:
    """The same for the engines' reference mixes."""
    ttft, tbot = _profile_at(layout, problem, load)
    return ttft / problem.trim, layout.figures.reference_output * tbot / problem.trim


def _in_flight(layout: Layout, by_source: Floats) -> list[tuple[tuple[str, str, float], ...]]:
    """N*_fj by engine, from requests/s times the time each is on its way or there (Little's law)."""
    by_front = np.zeros((len(layout.frontends), by_source.shape[1]))
    np.add.at(by_front, layout.frontend_of, by_source)
    return [
        tuple(
            (policy, frontend, float(by_front[row, column]))
            for row, (policy, frontend) in enumerate(layout.frontends)
            if by_front[row, column] > 0.0
        )
        for column in range(by_source.shape[1])
    ]


def ineligible(snapshot: Snapshot, layout: Layout, problem: Problem) -> tuple[IneligiblePair, ...]:
    """Pairs without a column in the policies' namespaces, each with the first rule that excluded it."""
    engines = sorted_engines(snapshot)
    columns = {name: column for column, name in enumerate(layout.engines)}
    column_of = np.array([columns.get(engine.id, -1) for engine in engines], dtype=np.int64)
    service = [service_exclusion(engine) for engine in engines]
    result = []
    for row, key in enumerate(layout.sources):
        served = np.append(problem.allowed[row], False)[column_of]
        models = layout.rules.models[key.policy, key.model]
        reach = layout.rules.reach[key.policy, key.frontend]
        for at in np.flatnonzero(layout.rules.home[key.policy] & ~served).tolist():
            rule = models[at] or reach[at] or service[at]
            if rule is None:
                rule = capacity_exclusion(engines[at], float(problem.stated_work[row, column_of[at]]))
            assert rule is not None, "a pair without a column has a rule"
            result.append(IneligiblePair(source=key, engine=engines[at].id, reason=rule.reason, message=rule.message))
    return tuple(result)


def failed(message: str) -> Solution:
    """No answer: the last table stays. The message says why."""
    return Solution(status="Failed", objective=0.0, sources=(), routes=(), engines=(), message=message)
