"""Held: the weights of the last table, evaluated on today's demand.

Not a strategy a policy can name: it stands for a frozen policy (break-glass) and for one whose own strategy has no
answer, so that others see the load its routers really send. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace_operator.optimizer import evaluate
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.strategies.base import Flows


def has_previous(snapshot: Snapshot, policy: str) -> bool:
    """Whether a table of the policy stands."""
    return any(route.policy == policy for route in snapshot.previous)


def held(snapshot: Snapshot, policy: str, fixed: Mapping[str, float]) -> Solution:
    """What the last weights do with the demand of now; a source without any counts as shed."""
    demand = {source.key: source.requests_per_second for source in snapshot.demand if source.policy == policy}
    keys = {tuple(key): key for key in demand}
    flows: Flows = {}
    for route in snapshot.previous:
        key = keys.get((route.policy, route.frontend, route.model, route.prompt_class))
        if key is not None:
            flows[key, route.engine] = route.weight * demand[key]
    return evaluate(snapshot, (policy,), flows, fixed=fixed)
