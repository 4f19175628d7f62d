"""The cold canonical solve: what is published. Sorted, pooled, in a solver of its own, checked.

On the routing-weight path. The same snapshot gives the same Solution, byte for byte, in any order of its parts and in
any process with the same library versions. Whatever goes wrong ends as status Failed with a message: an unproven
answer never becomes weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import numpy as np

from headrace_operator.optimizer.assemble import assembled, cleaned, failed, unpooled
from headrace_operator.optimizer.candidates import first_candidates
from headrace_operator.optimizer.layout import build_layout
from headrace_operator.optimizer.loaded import load, optimum
from headrace_operator.optimizer.pools import pooled
from headrace_operator.optimizer.problem import Problem, build_problem, shedding_open
from headrace_operator.optimizer.programme import Flows
from headrace_operator.optimizer.readings import Reader
from headrace_operator.optimizer.solution import Solution
from headrace_operator.optimizer.solver import TIME_LIMIT
from headrace_operator.snapshot.model import Snapshot

NO_FIXED: Mapping[str, float] = MappingProxyType({})


def solve(snapshot: Snapshot, policies: tuple[str, ...], *, fixed: Mapping[str, float] = NO_FIXED) -> Solution:
    """The optimal split of one component's demand.

    policies: ids, in any order. fixed: engine id to work of policies outside the component, replica-s/s. Never
    raises on what a snapshot holds; status "Failed" says that there is no answer.
    """
    return _solve(snapshot, policies, fixed, shedding=shedding_open(snapshot, policies))


def overloaded(snapshot: Snapshot, policies: tuple[str, ...], *, fixed: Mapping[str, float] = NO_FIXED) -> bool:
    """Whether demand less two deviations is more than the engines in reach can carry at C_j."""
    names = set(policies)
    lower = tuple(
        msgspec.structs.replace(demand, requests_per_second=demand.requests_per_second - 2.0 * demand.deviation)
        for demand in snapshot.demand
        if demand.policy in names
    )
    calm = msgspec.structs.replace(snapshot, demand=lower, previous=(), savings=())
    solution = _solve(calm, policies, fixed, shedding=True)
    served = {route.source for route in solution.routes}
    shed = sum(amount for entry in solution.sources if entry.source in served for _, amount in entry.shed)
    return solution.status == "Optimal" and shed > 1e-6 * sum(entry.demand for entry in solution.sources)


def _solve(snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float], *, shedding: bool) -> Solution:
    layout = build_layout(snapshot, policies)
    readings = Reader(layout).read(snapshot)
    problem = build_problem(layout, readings, fixed, shedding=shedding)
    together, pools = pooled(problem)
    answer = _optimum(together)
    if isinstance(answer, str):
        return failed(answer)
    found, objective = answer
    outcome = unpooled(problem, pools, together, cleaned(together, found), readings.demand)
    stranded = sorted({key.model for key, served in zip(layout.sources, problem.served, strict=True) if not served})
    message = f"no eligible engine for {', '.join(stranded)}" if stranded else ""
    return assembled(
        snapshot, layout, problem, readings.demand, outcome, status="Optimal", objective=objective, message=message
    )


def _optimum(problem: Problem) -> tuple[Flows, float] | str:
    """Flows and objective over all allowed pairs; a sentence when there is none.

    Pairs that price out are added in one solver; what is used comes from a solver that began with all of them.
    """
    if not problem.allowed.any():
        return _nothing(problem), 0.0
    candidates = first_candidates(problem.allowed, problem.direct, problem.previous)
    while True:
        found = optimum(load(problem, candidates, time_limit=TIME_LIMIT), problem)
        if isinstance(found, str):
            return found
        if (found.loaded.candidates == candidates).all():
            return found.flows, found.objective
        candidates = found.loaded.candidates


def _nothing(problem: Problem) -> Flows:
    """No pair at all: everything is refused, nothing has a price."""
    sources, engines = problem.work.shape
    return Flows(
        flow=np.zeros((sources, engines)),
        moved=np.zeros((sources, engines)),
        shed=np.zeros(len(problem.piece_source)),
        source_price=np.zeros(sources),
        engine_price=np.zeros(engines),
        marginal=np.zeros(sources),
    )
