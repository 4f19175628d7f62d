"""Components: which policies are solved together.

On the routing-weight path, pure. Policies that can use a common engine share its capacity, so they share a solve.
Policies that don't optimise look at no load: they come first, each alone, and their load is fixed for the others. A
Shadow policy is solved alone, over what the others have published.
"""

from __future__ import annotations

from headrace_operator.optimizer.layout import frontend_of, source_keys
from headrace_operator.snapshot.eligibility import frontend_exclusion, model_exclusion
from headrace_operator.snapshot.model import EngineState, Snapshot
from headrace_operator.snapshot.selection import Selection


def components(snapshot: Snapshot) -> tuple[tuple[str, ...], ...]:
    """Groups of policy ids, every policy once: frozen and rule-based ones, then components, then Shadow policies."""
    policies = sorted(snapshot.policies, key=lambda policy: policy.id)
    enforced = [policy for policy in policies if policy.spec.mode == "Enforce"]
    optimised = [policy.id for policy in enforced if not policy.frozen and policy.spec.strategy.type == "Optimized"]
    fixed = tuple((policy.id,) for policy in enforced if policy.id not in optimised)
    shadows = tuple((policy.id,) for policy in policies if policy.spec.mode != "Enforce")
    return fixed + _connected(snapshot, tuple(optimised)) + shadows


def _connected(snapshot: Snapshot, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Connected components of policies by common engines, in order of their first policy."""
    if len(names) < 2:
        return tuple((name,) for name in names)
    reach = _reachable(snapshot, names)
    groups: list[tuple[list[str], set[str]]] = []
    for name in names:
        members, engines = [name], reach[name]
        apart = []
        for group, used in groups:
            if used & engines:
                members, engines = group + members, engines | used
            else:
                apart.append((group, used))
        groups = [*apart, (members, engines)]
    return tuple(sorted(tuple(sorted(members)) for members, _ in groups))


def _reachable(snapshot: Snapshot, names: tuple[str, ...]) -> dict[str, set[str]]:
    """Engines that some source of each policy may use by its specs, in service or not.

    Front-ends ask for the same few residencies and clusters, so each rule is asked once a kind and engine.
    """
    policies = {policy.id: policy for policy in snapshot.policies}
    selection = Selection(snapshot.engines)
    selected = {name: selection.of(name, policies[name].spec) for name in names}
    serves: dict[tuple[str, str], tuple[EngineState, ...]] = {}
    reaches: dict[tuple[object, ...], bool] = {}
    reach: dict[str, set[str]] = {name: set() for name in names}
    for key in source_keys(snapshot, names):
        if (key.policy, key.model) not in serves:
            policy = policies[key.policy]
            serves[key.policy, key.model] = tuple(
                engine for engine in selected[key.policy] if model_exclusion(policy, key.model, engine) is None
            )
        frontend = frontend_of(policies[key.policy], key.frontend)
        for engine in serves[key.policy, key.model]:
            pair = (frontend.residency, frontend.location.cluster, engine.id)
            if pair not in reaches:
                reaches[pair] = frontend_exclusion(frontend, engine) is None
            if reaches[pair]:
                reach[key.policy].add(engine.id)
    return reach
