"""What publishing itself found, laid over the status that was decided: tables that don't stand, edits that are refused.

On the routing-weight path; pure. The decision knows the weights, only the publisher knows whether they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from headrace_api.names import PUBLISHED, READY, SOLVED, STALLED
from headrace_api.status import MAX_CONDITIONS, MAX_MESSAGE, Condition, EngineStatus, PolicyStatus, clip


def laid_over(
    status: PolicyStatus,
    previous: PolicyStatus | None,
    *,
    unpublished: Sequence[tuple[str, str]] = (),
    fault: str = "",
    trouble: str = "",
    at: str,
) -> PolicyStatus:
    """The status with conditions of what went wrong outside the decision.

    unpublished: (reason, message) of tables that don't stand. fault: why the latest edit of the policy is refused.
    trouble: why nothing is decided any more, for any policy. previous: what stands in the file, for the
    times of changes. at: now, RFC 3339.
    """
    found: list[Condition] = []
    if unpublished:
        reason, _ = unpublished[0]
        message = "; ".join(sentence for _, sentence in unpublished)
        found += [
            _condition(PUBLISHED, "False", reason, message),
            _condition(READY, "False", reason, message),
        ]
    if trouble:
        found = [one for one in found if one.type != READY]
        found += [_condition(kind, "False", "RoundsFail", trouble) for kind in (READY, SOLVED)]
    if fault:
        message = f"the last valid spec stays in force: {fault}"
        found = [one for one in found if one.type != READY]
        found += [_condition(READY, "False", "InvalidSpec", message), _condition(STALLED, "True", "InvalidSpec", fault)]
    if not found:
        return status
    old = {condition.type: condition for condition in previous.conditions} if previous else {}
    changed = {one.type: _dated(one, old.get(one.type), at, status.observed_generation) for one in found}
    kept = [condition for condition in status.conditions if condition.type not in changed]
    conditions = sorted([*kept, *changed.values()], key=lambda condition: condition.type)
    return msgspec.structs.replace(status, conditions=tuple(conditions[:MAX_CONDITIONS]))


def _condition(kind: str, status: Literal["True", "False"], reason: str, message: str) -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=clip(message, MAX_MESSAGE), last_transition_time=""
    )


def _dated(condition: Condition, old: Condition | None, at: str, generation: int) -> Condition:
    same = old is not None and old.status == condition.status
    since = old.last_transition_time if old is not None and same else at
    return msgspec.structs.replace(condition, last_transition_time=since, observed_generation=generation)


def rejected_policy(generation: int, fault: str, previous: PolicyStatus | None, at: str) -> PolicyStatus:
    """The status of a policy whose spec never was in force: accepted by the API, refused by us for ``fault``."""
    old = previous or PolicyStatus()
    return msgspec.structs.replace(
        old, observed_generation=generation, conditions=_rejected(generation, fault, old.conditions, at)
    )


def rejected_engine(generation: int, fault: str, previous: EngineStatus | None, at: str) -> EngineStatus:
    """The same of an engine."""
    old = previous or EngineStatus()
    return msgspec.structs.replace(
        old, observed_generation=generation, conditions=_rejected(generation, fault, old.conditions, at)
    )


def _rejected(generation: int, fault: str, old: Sequence[Condition], at: str) -> tuple[Condition, ...]:
    known = {condition.type: condition for condition in old}
    found = (
        _condition(READY, "False", "InvalidSpec", f"no valid spec yet: {fault}"),
        _condition(STALLED, "True", "InvalidSpec", fault),
    )
    return tuple(_dated(one, known.get(one.type), at, generation) for one in found)
