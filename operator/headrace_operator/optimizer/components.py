"""Components: which policies are solved together.

On the routing-weight path, pure. Policies that can use a common engine share its capacity, so they share a solve.
Policies that don't optimise look at no load: they come first, each alone, and their load is fixed for the others. A
Shadow policy is solved alone, over what the others have published.
"""

from __future__ import annotations

import numpy as np

from headrace_operator.optimizer.layout import build_layout
from headrace_operator.snapshot.model import Snapshot


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
    groups: list[tuple[list[str], set[int]]] = []
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


def _reachable(snapshot: Snapshot, names: tuple[str, ...]) -> dict[str, set[int]]:
    """Engines (by position) that some source of each policy may use by its specs, in service or not."""
    layout = build_layout(snapshot, names)
    reach: dict[str, set[int]] = {name: set() for name in names}
    for row, key in enumerate(layout.sources):
        reach[key.policy].update(np.flatnonzero(layout.possible[row]).tolist())
    return reach
