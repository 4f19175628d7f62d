"""Policies' states: which engines each selects, which served names it rules, who rules when two claim the same.

On the routing-weight path; pure. Of two Enforce policies on the same front-end and model the older rules, by
creationTimestamp and then namespace/name (the Gateway API's order), so that the answer is the same after a restart and
the next one is promoted when the winner goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from headrace_api.base import resource_id
from headrace_api.names import ANNOTATION_FREEZE_UNTIL
from headrace_api.policy import RoutingPolicy
from headrace_operator.snapshot.build_engines import break_glass
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.model import EngineState, PolicyState
from headrace_operator.snapshot.selection import Selection


def served_names(policy: PolicyState, engines: Iterable[EngineState]) -> tuple[tuple[str, str], ...]:
    """(model of the policy, served name): its models, and the adapters of those that engines serve as a base."""
    named = {model.name for model in policy.spec.models}
    names = {(name, name) for name in named}
    for engine in engines:
        for served in engine.spec.models:
            if served.name in named:
                names |= {(served.name, adapter) for adapter in served.adapters if adapter not in named}
    return tuple(sorted(names))


def policy_states(
    policies: Iterable[RoutingPolicy], selection: Selection, *, at: float, notes: list[str]
) -> tuple[PolicyState, ...]:
    """All policies sorted by id, with conflicts settled."""
    unique = {resource_id(policy.metadata): policy for policy in policies}
    states: list[PolicyState] = []
    for name in sorted(unique):
        policy = unique[name]
        freeze = break_glass(policy.metadata, ANNOTATION_FREEZE_UNTIL, at)
        if freeze.note:
            notes.append(freeze.note)
        state = PolicyState(
            id=name,
            uid=policy.metadata.uid,
            generation=policy.metadata.generation,
            created=policy.metadata.creation_timestamp,
            spec=policy.spec,
            frozen=freeze.holds,
            message=f"frozen {freeze.message}" if freeze.holds else freeze.note,
            editor=policy.metadata.editor,
        )
        served = served_names(state, selection.of(name, policy.spec))
        states.append(msgspec.structs.replace(state, served=served))
    return _with_conflicts(states, notes)


def _age_order(policy: PolicyState) -> tuple[float, str]:
    """The older first; one without a time (a file) counts as older than none, by name."""
    created = epoch_seconds(policy.created)
    return (created if created is not None else inf, policy.id)


def _with_conflicts(states: Iterable[PolicyState], notes: list[str]) -> tuple[PolicyState, ...]:
    """Each policy with the (front-end, model) pairs that an older one rules."""
    rulers: dict[tuple[str, str], str] = {}
    settled: list[PolicyState] = []
    for policy in sorted(states, key=_age_order):
        if policy.spec.mode != "Enforce":
            settled.append(policy)
            continue
        conflicts: list[tuple[str, str, str]] = []
        for frontend in policy.spec.frontends:
            for _, model in policy.served:
                ruler = rulers.setdefault((frontend.name, model), policy.id)
                if ruler != policy.id:
                    conflicts.append((frontend.name, model, ruler))
        if conflicts:
            frontend_name, model, ruler = min(conflicts)
            notes.append(
                f"{policy.id}: {ruler} is older and rules model {model} at front-end {frontend_name}"
                + (f", and {len(conflicts) - 1} more pairs" if len(conflicts) > 1 else "")
            )
        settled.append(msgspec.structs.replace(policy, conflicts=tuple(sorted(conflicts))))
    return tuple(sorted(settled, key=lambda policy: policy.id))
