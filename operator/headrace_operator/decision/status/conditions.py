"""Conditions of a policy, in the form that kubectl, Argo CD and Flux read.

On the routing-weight path; pure. A condition changes only when its status or reason flips: then its message and time
are written, else the old one stays word for word, so that status holds nothing that moves by itself. One that names
states, and no figures, follows them. Load, shed, penalties and stale signals never change Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from headrace_api.names import CAPACITY_SUFFICIENT, PROFILE_DRIFT, PUBLISHED, READY, SIGNALS_FRESH, SOLVED, STALLED
from headrace_api.status import MAX_MESSAGE, Condition, clip

ORDER: Final = (READY, STALLED, PUBLISHED, SOLVED, CAPACITY_SUFFICIENT, SIGNALS_FRESH, PROFILE_DRIFT)


class Finding(NamedTuple):
    """One judgement of this tick. follows: its message holds states alone, which flip and don't move by themselves."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    follows: bool = False


def merged(
    old: Iterable[Condition], findings: Sequence[Finding], *, kept: Iterable[str] = (), generation: int, at: str
) -> tuple[Condition, ...]:
    """Conditions after the findings.

    kept: types without a finding that stay as they were; all others of ours without one go (Stalled and ProfileDrift
    stand only while True). Conditions of other writers stay. at: RFC 3339.
    """
    known = {condition.type: condition for condition in old}
    staying = set(kept)
    result = {name: known[name] for name in known if name in staying or name not in ORDER}
    for finding in findings:
        result[finding.type] = _after(known.get(finding.type), finding, generation, at)
    for name in result:
        if name in staying or name in {finding.type for finding in findings}:
            result[name] = msgspec.structs.replace(result[name], observed_generation=generation)
    ranked = sorted(result, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return tuple(result[name] for name in ranked)


def _after(old: Condition | None, finding: Finding, generation: int, at: str) -> Condition:
    if old is not None and old.status == finding.status and old.reason == finding.reason:
        if old.observed_generation == generation and not finding.follows:
            return old
        return msgspec.structs.replace(old, message=clip(finding.message, MAX_MESSAGE))
    since = old.last_transition_time if old is not None and old.status == finding.status else at
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=clip(finding.message, MAX_MESSAGE),
        last_transition_time=since,
        observed_generation=generation,
    )


def status_of(conditions: Iterable[Condition], name: str) -> str:
    """A condition's status, or Unknown where it does not stand."""
    return next((condition.status for condition in conditions if condition.type == name), "Unknown")


def reason_of(conditions: Iterable[Condition], name: str) -> str:
    """A condition's reason, or empty."""
    return next((condition.reason for condition in conditions if condition.type == name), "")
