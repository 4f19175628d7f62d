"""Mass loss: half a model's capacity gone in one tick is believed only when somebody else saw it too.

On the routing-weight path; pure. A label typo, a lost permission or an empty list must not become an outage (the API
page, Mass loss). Somebody else: liveness known to be lost, or an edit of the engine itself (its state, its spec) or of
the policy. Until then the last known states are held, and the hold is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final, NamedTuple

import msgspec

from headrace_operator.decision.why.text import listed, plain
from headrace_operator.snapshot.eligibility import bare_name, exclusion, model_exclusion, namespace, service_exclusion
from headrace_operator.snapshot.model import EngineState, PolicyState, Snapshot
from headrace_operator.snapshot.selection import Selection
from headrace_operator.snapshot.work import reference_work_of

BELIEVED_SHARE: Final = 0.5  # of a model's ready capacity that may go in one tick on one source's word


class Hold(NamedTuple):
    """Engines of a policy's model that are held at their last known state, and the sentence people read."""

    policy: str
    model: str
    engines: tuple[str, ...]
    message: str


def hold_losses(last: Snapshot | None, now: Snapshot) -> tuple[Snapshot, tuple[Hold, ...]]:
    """The snapshot with engines of unbelieved mass losses as they were, and what is held."""
    if last is None:
        return now, ()
    old_policies = {policy.id: policy for policy in last.policies}
    present = {engine.id: engine for engine in now.engines}
    selection = Selection(last.engines)
    holds: list[Hold] = []
    for policy in now.policies:
        old = old_policies.get(policy.id)
        if old is not None and old.spec == policy.spec:
            holds += _holds(policy, selection.of(policy.id, policy.spec), present)
    held = {name for hold in holds for name in hold.engines}
    return (_with_held(last, now, held), tuple(holds)) if held else (now, ())


def _holds(policy: PolicyState, selected: Iterable[EngineState], present: Mapping[str, EngineState]) -> list[Hold]:
    """selected: engines of the policy before. present: all engines now, by id."""
    holds: list[Hold] = []
    for model in sorted({model for _, model in policy.served} | {entry.name for entry in policy.spec.models}):
        before = [engine for engine in selected if _serves(policy, model, engine)]
        less = [(engine, present.get(engine.id)) for engine in before if _has_less(policy, model, engine, present)]
        unbelieved = [(engine, after) for engine, after in less if not _agreed(engine, after)]
        if not unbelieved:
            continue
        whole = sum(_carried(engine) for engine in before)
        lost = sum(_carried(engine) - _left(policy, model, after) for engine, after in unbelieved)
        if lost > BELIEVED_SHARE * whole:
            names = listed([bare_name(engine.id) for engine, _ in unbelieved])
            holds.append(
                Hold(
                    policy.id,
                    model,
                    tuple(engine.id for engine, _ in unbelieved),
                    f"{plain(lost)} of {plain(whole)} requests/s of {model} gone at once ({names}) and nobody else saw "
                    "it; the last weights stay; if it is meant, set state: Draining first, or edit the policy",
                )
            )
    return holds


def _has_less(policy: PolicyState, model: str, before: EngineState, present: Mapping[str, EngineState]) -> bool:
    after = present.get(before.id)
    return after is None or after.ready < before.ready or not _serves(policy, model, after)


def _left(policy: PolicyState, model: str, after: EngineState | None) -> float:
    """Requests/s that the engine still carries for the model."""
    return _carried(after) if after is not None and _serves(policy, model, after) else 0.0


def _serves(policy: PolicyState, model: str, engine: EngineState) -> bool:
    return (
        namespace(policy.id) == namespace(engine.id)
        and model_exclusion(policy, model, engine) is None
        and service_exclusion(engine) is None
    )


def _carried(engine: EngineState) -> float:
    """Requests/s of the engine's reference mix; replicas where its work is not known."""
    work = reference_work_of(engine)
    return engine.ready / work if isfinite(work) and work > 0 else engine.ready


def _agreed(before: EngineState, after: EngineState | None) -> bool:
    """Whether a second source, or the administrator, says the same."""
    if after is None:
        return False
    # Where it stands may be known from its pods alone: that this changes with them is no edit.
    spec = msgspec.structs.replace(after.spec, location=before.spec.location)
    return not after.alive or after.loss_agreed or after.state != "Active" or spec != before.spec


def _with_held(last: Snapshot, now: Snapshot, held: set[str]) -> Snapshot:
    engines = {engine.id: engine for engine in now.engines}
    engines |= {engine.id: engine for engine in last.engines if engine.id in held}
    network = {(pair.policy, pair.frontend, pair.engine): pair for pair in last.network if pair.engine in held}
    network |= {(pair.policy, pair.frontend, pair.engine): pair for pair in now.network}
    return msgspec.structs.replace(
        now,
        engines=tuple(engines[name] for name in sorted(engines)),
        network=tuple(network[key] for key in sorted(network)),
    )


def emptied_by_edit(last: Snapshot | None, now: Snapshot, policy: PolicyState, models: Iterable[str]) -> bool:
    """Whether a model's engines are all gone by an edit, so that only another edit helps."""
    if last is None:
        return False
    old = next((entry for entry in last.policies if entry.id == policy.id), None)
    if old is None:
        return False
    present = {engine.id: engine for engine in now.engines}
    for model in models:
        before = [
            engine
            for engine in last.engines
            if any(exclusion(old, frontend, model, engine) is None for frontend in old.spec.frontends)
        ]
        if before and all(_edited_away(policy, model, engine, present.get(engine.id)) for engine in before):
            return True
    return False


def _edited_away(policy: PolicyState, model: str, before: EngineState, after: EngineState | None) -> bool:
    if after is None:
        return True
    if model_exclusion(policy, model, after) is not None or after.state != before.state:
        return True
    return not any(exclusion(policy, frontend, model, after) is None for frontend in policy.spec.frontends) and (
        service_exclusion(after) is None
    )
