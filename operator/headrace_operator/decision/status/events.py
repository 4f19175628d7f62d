"""Events: the short-lived counterpart of status, on the policy and on the engine concerned.

Pure: the shell gives them a deterministic name and a count. Only what flipped is an Event; what is still so is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from headrace_api.names import CAPACITY_SUFFICIENT, PROFILE_DRIFT, READY, SIGNALS_FRESH, STALLED
from headrace_api.status import Condition
from headrace_operator.decision.status.conditions import reason_of, status_of
from headrace_operator.decision.status.findings import BREAK_GLASS_IGNORED, FROZEN
from headrace_operator.decision.why.text import plural
from headrace_operator.snapshot.eligibility import bare_name
from headrace_operator.snapshot.model import EngineState, Snapshot

# Condition, the status it flipped to, and the Event that says so.
_FLIPS: tuple[tuple[str, str, Literal["Normal", "Warning"], str], ...] = (
    (CAPACITY_SUFFICIENT, "False", "Warning", "SheddingStarted"),
    (SIGNALS_FRESH, "False", "Warning", "SignalsStale"),
    (STALLED, "True", "Warning", "PolicyInvalid"),
    (PROFILE_DRIFT, "True", "Warning", "ProfileDrift"),
)
# Reason of Ready that says what break-glass does, and the Event of its coming.
_REASONS: tuple[tuple[str, Literal["Normal", "Warning"], str], ...] = (
    (FROZEN, "Normal", "PolicyFrozen"),
    (BREAK_GLASS_IGNORED, "Warning", BREAK_GLASS_IGNORED),
)
BREAK_GLASS: Final = frozenset({"PolicyFrozen", "PolicyResumed", BREAK_GLASS_IGNORED})
"""Events of a policy's break-glass: they stand in its history too."""


class Event(NamedTuple):
    """What the shell writes: kind and id (namespace/name) of the object, type, reason, message."""

    kind: Literal["RoutingPolicy", "InferenceEngine"]
    id: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def condition_events(policy: str, old: Iterable[Condition], new: Iterable[Condition]) -> list[Event]:
    """Events for conditions that flipped."""
    before, after = list(old), list(new)
    events = [
        Event("RoutingPolicy", policy, kind, reason, _message(after, name))
        for name, status, kind, reason in _FLIPS
        if status_of(after, name) == status != status_of(before, name)
    ]
    events += [
        Event("RoutingPolicy", policy, kind, event, _message(after, READY))
        for reason, kind, event in _REASONS
        if reason_of(after, READY) == reason != reason_of(before, READY)
    ]
    if reason_of(before, READY) == FROZEN and reason_of(after, READY) != FROZEN:
        events.append(Event("RoutingPolicy", policy, "Normal", "PolicyResumed", "weights follow the world again"))
    if status_of(before, CAPACITY_SUFFICIENT) == "False" and status_of(after, CAPACITY_SUFFICIENT) == "True":
        events.append(Event("RoutingPolicy", policy, "Normal", "SheddingStopped", "nothing is refused any more"))
    return events


def _message(conditions: Iterable[Condition], name: str) -> str:
    return next(condition.message for condition in conditions if condition.type == name)


def engine_events(last: Snapshot | None, now: Snapshot, users: dict[str, list[str]]) -> list[Event]:
    """Deaths, penalties and drains by annotation that began or ended, on the engine and each policy that may use it.

    users: those policies by engine id.
    """
    if last is None:
        return []
    old = {engine.id: engine for engine in last.engines}
    events: list[Event] = []
    for engine in now.engines:
        before = old.get(engine.id)
        if before is not None and _answers(before) != _answers(engine):
            events += _coming_or_going(engine, users.get(engine.id, []))
        if before is not None and _penalised(before) != _penalised(engine):
            events += _about(engine, users.get(engine.id, []))
        if before is not None and before.message != engine.message:
            events += _break_glass(before, engine, users.get(engine.id, []))
    return events


def _answers(engine: EngineState) -> bool:
    return engine.alive and engine.ready > 0


def _coming_or_going(engine: EngineState, policies: list[str]) -> list[Event]:
    name = bare_name(engine.id)
    if _answers(engine):
        message = f"{name} has {plural(round(engine.ready), 'ready replica')} again"
        return _on_both(engine, policies, "Normal", "EngineAvailable", message)
    message = f"{name} has no ready replica: nothing new is sent there" if engine.alive else f"{name} does not answer"
    return _on_both(engine, policies, "Warning", "EngineUnavailable", message)


def _penalised(engine: EngineState) -> bool:
    return engine.penalty.value < 1.0


def _about(engine: EngineState, policies: list[str]) -> list[Event]:
    if _penalised(engine):
        kind: Literal["Normal", "Warning"] = "Warning"
        reason = "EnginePenalized"
        message = f"{bare_name(engine.id)} x{engine.penalty.value:.2g}: {engine.penalty.reason or 'an outlier'}"
    else:
        kind, reason, message = "Normal", "EngineRecovered", f"{bare_name(engine.id)} has its full weight again"
    return _on_both(engine, policies, kind, reason, message)


def _break_glass(before: EngineState, engine: EngineState, policies: list[str]) -> list[Event]:
    """A drain by annotation that began, changed or ended, or one that has no effect."""
    if engine.message and engine.state == "Active":
        return _on_both(engine, policies, "Warning", BREAK_GLASS_IGNORED, engine.message)
    if engine.message:
        return _on_both(engine, policies, "Normal", "EngineDrained", engine.message)
    if before.state == "Active" or engine.state != "Active":
        return []
    return _on_both(engine, policies, "Normal", "EngineResumed", f"{bare_name(engine.id)} is drained no longer")


def _on_both(
    engine: EngineState, policies: list[str], kind: Literal["Normal", "Warning"], reason: str, message: str
) -> list[Event]:
    return [
        Event("InferenceEngine", engine.id, kind, reason, message),
        *(Event("RoutingPolicy", policy, kind, reason, message) for policy in policies),
    ]
