"""All policies of a snapshot, each by its strategy, in the order in which they burden the engines.

On the routing-weight path; pure. Rules and frozen policies come first and are fixed load for the rest; then the
connected components of Optimized policies; then each Shadow policy alone over everybody else's load. A rule's load
counts up to C_j: what it sends beyond an engine's capacity is its own queue, not less capacity than none for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headrace_operator.optimizer import components
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.cut import Cut
from headrace_operator.snapshot.model import PolicyState, Snapshot
from headrace_operator.strategies.base import ComponentResult
from headrace_operator.strategies.feedback import FEEDBACK
from headrace_operator.strategies.held import has_previous, held
from headrace_operator.strategies.nearest import nearest
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.round_robin import round_robin
from headrace_operator.strategies.static import static

Rule = Callable[[Snapshot, str, Mapping[str, float]], Solution]
Solve = Callable[[Snapshot, tuple[str, ...], Mapping[str, float]], Solution]
Load = dict[str, float]

HELD: Final = "Held"
_RULES: Final[dict[str, Rule]] = {"Nearest": nearest, "RoundRobin": round_robin, "Static": static}


def run_strategies(
    snapshot: Snapshot, *, solve: Solve = optimized, cut: Cut | None = None
) -> tuple[ComponentResult, ...]:
    """The results of all components, in order; ``solve`` is the seam for the programme.

    cut: the snapshot's Cutter, where engines that a component doesn't select need no word in its result.
    """
    part = cut or (lambda _: snapshot)
    policies = {policy.id: policy for policy in snapshot.policies}
    capacity = {engine.id: engine.ready for engine in snapshot.engines}
    order = components(snapshot)
    first = [ids for ids in order if _enters_first(snapshot, policies[ids[0]])]
    results = _fixed_results(part, policies, first, capacity)
    rules = _capped(_sum_loads(results), capacity)
    for ids in order:
        if ids in first or _shadow(policies[ids[0]]):
            continue
        results.append(ComponentResult(ids, "Optimized", False, solve(part(ids), ids, rules)))
    everybody = _capped(_sum_loads([_as_sent(part(result.policies), result) for result in results]), capacity)
    for ids in order:
        if _shadow(policies[ids[0]]):
            results.append(_alone(part(ids), policies[ids[0]], everybody, solve))
    return tuple(results)


def rerun(snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float], solve: Solve) -> Solution:
    """One component once more, on another snapshot, by the strategy that its policies have there."""
    policy = next(entry for entry in snapshot.policies if entry.id == policies[0])
    if policy.spec.strategy.type == "Optimized" and not _frozen(snapshot, policy):
        return solve(snapshot, policies, fixed)
    return _by_rule(snapshot, policy, fixed).solution


def fixed_for(snapshot: Snapshot, results: tuple[ComponentResult, ...]) -> Load:
    """Work of rules and frozen policies on each engine, as the Optimized components of ``results`` saw it."""
    capacity = {engine.id: engine.ready for engine in snapshot.engines}
    return _capped(
        _sum_loads([result for result in results if result.strategy != "Optimized" and not result.shadow]), capacity
    )


def _shadow(policy: PolicyState) -> bool:
    return policy.spec.mode == "Shadow"


def _enters_first(snapshot: Snapshot, policy: PolicyState) -> bool:
    return not _shadow(policy) and (policy.spec.strategy.type != "Optimized" or _frozen(snapshot, policy))


def _frozen(snapshot: Snapshot, policy: PolicyState) -> bool:
    return policy.frozen and has_previous(snapshot, policy.id)


def _fixed_results(
    part: Cut, policies: Mapping[str, PolicyState], first: list[tuple[str, ...]], capacity: Mapping[str, float]
) -> list[ComponentResult]:
    """Rules and frozen policies, each evaluated over the load of the other ones."""
    alone = [_by_rule(part(ids), policies[ids[0]], {}) for ids in first]
    if len(alone) < 2:
        return alone
    return [
        _by_rule(
            part(ids),
            policies[ids[0]],
            _capped(_sum_loads([result for result in alone if result.policies != ids]), capacity),
        )
        for ids in first
    ]


def _by_rule(snapshot: Snapshot, policy: PolicyState, fixed: Mapping[str, float]) -> ComponentResult:
    ids = (policy.id,)
    if _frozen(snapshot, policy):
        return ComponentResult(ids, HELD, False, held(snapshot, policy.id, fixed))
    rule = _RULES.get(policy.spec.strategy.type)
    if rule is not None:
        return ComponentResult(ids, policy.spec.strategy.type, _shadow(policy), rule(snapshot, policy.id, fixed))
    refused = Solution(status="Failed", objective=0.0, sources=(), routes=(), engines=(), message=FEEDBACK.message)
    return ComponentResult(ids, FEEDBACK.strategy, _shadow(policy), refused)


def _alone(snapshot: Snapshot, policy: PolicyState, fixed: Mapping[str, float], solve: Solve) -> ComponentResult:
    """A Shadow policy over the load of all others."""
    if policy.spec.strategy.type == "Optimized":
        return ComponentResult((policy.id,), "Optimized", True, solve(snapshot, (policy.id,), fixed))
    return _by_rule(snapshot, policy, fixed)


def _as_sent(snapshot: Snapshot, result: ComponentResult) -> ComponentResult:
    """The result, or where it failed what the last tables of its policies send."""
    if result.solution.status != "Failed":
        return result
    loads = [held(snapshot, policy, {}) for policy in result.policies]
    engines = tuple(engine for solution in loads for engine in solution.engines)
    return result._replace(
        solution=Solution(status="Rule", objective=0.0, sources=(), routes=(), engines=engines, message="")
    )


def _sum_loads(results: list[ComponentResult]) -> Load:
    """Each engine's work by these results' own policies, replica-s/s."""
    load: Load = {}
    for result in results:
        for engine in result.solution.engines:
            load[engine.engine] = load.get(engine.engine, 0.0) + max(0.0, engine.load - engine.fixed)
    return load


def _capped(load: Load, capacity: Mapping[str, float]) -> Load:
    return {engine: min(work, capacity.get(engine, 0.0)) for engine, work in sorted(load.items()) if work > 0}
