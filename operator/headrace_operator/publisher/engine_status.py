"""InferenceEngine status: what the operator knows of an engine, and what it holds against it.

On the routing-weight path; pure (it returns the status, others write it). Nothing in it moves by itself: factors in
steps, states of signals and not their ages, and times only of changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from headrace_api.engine import InferenceEngine
from headrace_api.names import AVAILABLE, PENALIZED, READY, SIGNALS_FRESH, STALLED
from headrace_api.status import (
    MAX_FIGURE,
    MAX_MESSAGE,
    MAX_SIGNAL_TEXT,
    MAX_WEIGHT_TEXT,
    MAX_WHY_TEXT,
    Condition,
    EngineStatus,
    clip,
)
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.model import EngineState
from headrace_operator.snapshot.readings import HOLD_SECONDS

PROBLEMS: Final = 8


class SignalView(NamedTuple):
    """How well an engine is seen: the ladder's state, since when (RFC 3339), and what its pages said that is wrong.

    counted: what its measured replicas are; empty where they are as declared. misnamed: why nothing is ever read.
    read: whether it was before.
    """

    state: str
    since: str
    problems: tuple[str, ...] = ()
    counted: str = ""
    misnamed: str = ""
    read: bool = False


def engine_status(
    engine: InferenceEngine,
    generation: int,
    state: EngineState,
    view: SignalView | None,
    previous: EngineStatus | None,
    *,
    at: str,
    fault: str = "",
) -> EngineStatus:
    """The status now; ``previous`` when nothing but its time would change.

    at: now, RFC 3339. fault: why its latest edit is refused.
    """
    old = {condition.type: condition for condition in previous.conditions} if previous else {}
    said = view is not None and view.state != "Fresh" and not _not_read_yet(view, at)
    signals = (
        (f"metrics: {view.state}" + (f" since {view.since}" if view.since else ""),)
        if view is not None and said
        else ()
    )
    status = EngineStatus(
        observed_generation=generation,
        conditions=tuple(
            _kept(condition, old.get(condition.type), at, generation)
            for condition in _conditions(state, view, fault, at)
        ),
        models=clip(", ".join(_models(engine)), MAX_WEIGHT_TEXT),
        ready_replicas=int(state.ready) if state.alive else 0,
        replicas_from=_replicas_from(engine, state, view),
        penalty=clip(f"x{state.penalty.value:g}", MAX_FIGURE) if state.penalty.value < 1 else "",
        why=tuple(clip(sentence, MAX_WHY_TEXT) for sentence in _why(state, view if said else None)),
        signals=tuple(clip(signal, MAX_SIGNAL_TEXT) for signal in signals),
    )
    if previous is not None and status == msgspec.structs.replace(previous, as_of=None):
        return previous
    return msgspec.structs.replace(status, as_of=at)


def _kept(condition: Condition, old: Condition | None, at: str, generation: int) -> Condition:
    """The condition with the time of its last change of status."""
    since = old.last_transition_time if old is not None and old.status == condition.status else at
    return msgspec.structs.replace(condition, last_transition_time=since, observed_generation=generation)


def _conditions(state: EngineState, view: SignalView | None, fault: str, at: str) -> Sequence[Condition]:
    found = [_ready(fault), _available(state), _fresh(view, at), _penalized(state)]
    if fault:
        found.append(_condition(STALLED, True, "InvalidSpec", fault))
    return found


def _ready(fault: str) -> Condition:
    if fault:
        return _condition(READY, False, "InvalidSpec", f"the last valid spec stays in force: {fault}")
    return _condition(READY, True, "Accepted", "the spec is accepted")


def _available(state: EngineState) -> Condition:
    if state.state != "Active":
        why = state.message or f"state is {state.state}"
        return _condition(AVAILABLE, False, state.state, f"{why}; it gets no new requests")
    if not state.alive:
        return _condition(AVAILABLE, False, "NotAlive", "connects are refused at all of its urls")
    if state.ready <= 0:
        return _condition(AVAILABLE, False, "NoReplicas", "no replica is ready")
    return _condition(AVAILABLE, True, "ReplicasReady", f"ready replicas: {state.ready:g}")


def _not_read_yet(view: SignalView, at: str) -> bool:
    """Whether the figures may still come: never read, for less than signals are held."""
    now, since = epoch_seconds(at), epoch_seconds(view.since)
    return (
        view.state == "Unknown"
        and not view.read
        and now is not None
        and since is not None
        and -1.0 < now - since < HOLD_SECONDS
    )


def _fresh(view: SignalView | None, at: str) -> Condition:
    if view is None:
        return _condition(SIGNALS_FRESH, False, "NotRead", "its metrics are not read")
    if view.misnamed:
        return _condition(SIGNALS_FRESH, False, "SourceUnknown", view.misnamed)
    if _not_read_yet(view, at):
        starting = _condition(SIGNALS_FRESH, False, "Starting", "its metrics are not read yet")
        return msgspec.structs.replace(starting, status="Unknown")
    if view.state == "Fresh":
        return _condition(SIGNALS_FRESH, True, "Fresh", "its metrics are read")
    message = "; ".join(view.problems[:PROBLEMS]) or f"its metrics are {view.state}"
    return _condition(SIGNALS_FRESH, False, view.state, message)


def _penalized(state: EngineState) -> Condition:
    if state.penalty.value < 1:
        return _condition(PENALIZED, True, "Outlier", f"x{state.penalty.value:g}: {state.penalty.reason}")
    return _condition(PENALIZED, False, "Normal", state.penalty.reason or "no penalty")


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=clip(message, MAX_MESSAGE),
        last_transition_time="",
    )


def _models(engine: InferenceEngine) -> list[str]:
    return [f"{model.name} +{len(model.adapters)}" if model.adapters else model.name for model in engine.spec.models]


def _replicas_from(engine: InferenceEngine, state: EngineState, view: SignalView | None) -> str:
    ends = engine.spec.endpoints
    if view is not None and view.counted:
        return view.counted
    if state.ready_origin in ("Measured", "Held"):
        return "urls that answer" if ends.replicas is None else "declared, less urls that refuse"
    if ends.replicas is not None:
        return "declared"
    return "one per url" if ends.urls else "one assumed"


def _why(state: EngineState, view: SignalView | None) -> list[str]:
    """Factors at work, and what is wrong with the figures (no view: while they are fresh a missed read is no news)."""
    sentences = [
        f"{name} x{factor.value:.3g}: {factor.reason}"
        for name, factor in (
            ("penalty", state.penalty),
            ("ramp", state.ramp),
            ("trim", state.trim),
            ("staleness", state.staleness),
        )
        if factor.value != 1.0
    ]
    if state.message:
        sentences.insert(0, state.message)
    return [*sentences, *(view.problems[:PROBLEMS] if view is not None else ())]
