"""Engines' states: replicas, liveness, factors and break-glass, each with where it comes from.

On the routing-weight path; pure. Replicas by the API page: measured ready replicas, else those declared, else one per
url, else one, and a note says which. A factor that nothing was measured for is 1. An engine is only known to be dead
when someone saw it; silence is not death.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace_api.base import Metadata, resource_id
from headrace_api.engine import Endpoints, InferenceEngine
from headrace_api.names import ANNOTATION_DRAIN_UNTIL, ANNOTATION_WHY
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.model import EngineState, Origin
from headrace_operator.snapshot.read_signals import measurable
from headrace_operator.snapshot.readings import Ladder, usable
from headrace_operator.snapshot.signals import EngineSignal, Factor, Reading

BREAK_GLASS_SECONDS: Final = 86_400.0  # break-glass holds for at most a day (the API page)
MAX_REPLICAS: Final = 1_000_000.0
FACTOR_LIMIT: Final = 2.0


class BreakGlass(NamedTuple):
    """Whether a break-glass annotation is in force, what it says, and what is wrong with it."""

    holds: bool
    message: str
    note: str


def break_glass(metadata: Metadata, annotation: str, at: float) -> BreakGlass:
    """The annotation ``…-until`` judged at ``at``; an expired one is ignored without a word."""
    text = metadata.annotations.get(annotation)
    if text is None:
        return BreakGlass(False, "", "")
    name = resource_id(metadata)
    until = epoch_seconds(text)
    if until is None:
        wrong = f"{name}: annotation {annotation}: {text!r} is not RFC 3339; right would be 2026-01-31T12:00:00Z"
        return BreakGlass(False, "", wrong)
    if until <= at:
        return BreakGlass(False, "", "")
    if until > at + BREAK_GLASS_SECONDS:
        wrong = f"{name}: annotation {annotation}: {text} is more than 24 h ahead and has no effect"
        return BreakGlass(False, "", wrong)
    reason = _one_line(metadata.annotations.get(ANNOTATION_WHY, ""))
    return BreakGlass(True, f"until {text}" + (f": {reason}" if reason else ""), "")


def _one_line(text: str) -> str:
    """What someone wrote, as part of a sentence: no line breaks, nothing that moves a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def declared_replicas(endpoints: Endpoints) -> tuple[float, str]:
    """Replicas as far as the manifest knows them, and what to say when it states none."""
    if endpoints.replicas is not None:
        return float(endpoints.replicas), ""
    if endpoints.urls:
        return float(len(endpoints.urls)), "one per url"
    return 1.0, "1 behind the Service"


def engine_states(
    engines: Iterable[InferenceEngine], signals: Iterable[EngineSignal], *, at: float, elapsed: float, notes: list[str]
) -> tuple[EngineState, ...]:
    """All engines sorted by id; what fell back is appended to ``notes``."""
    measured = {signal.engine: signal for signal in signals}
    unique = {resource_id(engine.metadata): engine for engine in engines}
    strangers = sorted(measured.keys() - unique.keys())
    notes.extend(f"signals of engine {name}: no such engine; ignored" for name in strangers)
    return tuple(
        _state(name, unique[name], measured.get(name, EngineSignal(engine=name)), at, elapsed, notes)
        for name in sorted(unique)
    )


def _state(
    name: str, engine: InferenceEngine, signal: EngineSignal, at: float, elapsed: float, notes: list[str]
) -> EngineState:
    ready, origin = _ready(name, engine, signal, elapsed, notes)
    drain = break_glass(engine.metadata, ANNOTATION_DRAIN_UNTIL, at)
    if drain.note:
        notes.append(drain.note)
    drained = drain.holds and engine.spec.state == "Active"
    hits = _reading(f"prefix-hit share of {name}", signal.hit_share, elapsed, notes)
    return EngineState(
        id=name,
        spec=engine.spec,
        labels=tuple(sorted(engine.metadata.labels.items())),
        ready=ready,
        ready_origin=origin,
        alive=signal.alive is not False,
        loss_agreed=signal.loss_agreed,
        state="Draining" if drained else engine.spec.state,
        message=_drain_message(engine, drain, drained),
        editor=engine.metadata.editor,
        penalty=_factor(name, "penalty", signal.penalty, notes),
        ramp=_factor(name, "ramp", signal.ramp, notes),
        trim=_factor(name, "trim", signal.trim, notes),
        staleness=_factor(name, "staleness", signal.staleness, notes),
        hit_share=min(1.0, hits) if hits is not None else 0.0,
    )


def _drain_message(engine: InferenceEngine, drain: BreakGlass, drained: bool) -> str:
    """What break-glass says; of an engine that stays active, why an annotation has no effect."""
    if drained:
        return f"{engine.metadata.name} is drained {drain.message}"
    return drain.note if engine.spec.state == "Active" else ""


def _ready(
    name: str, engine: InferenceEngine, signal: EngineSignal, elapsed: float, notes: list[str]
) -> tuple[float, Origin]:
    reading = usable(signal.ready_replicas, elapsed, Ladder(), f"ready replicas of {name}")
    if reading.note:
        notes.append(reading.note)
    if reading.value is not None:
        return min(MAX_REPLICAS, reading.value), reading.origin
    replicas, assumed = declared_replicas(engine.spec.endpoints)
    if not assumed:
        return replicas, "Declared"
    notes.append(f"ready replicas of {name}: neither measured nor declared; {assumed} assumed")
    return replicas, "Default"


def _reading(name: str, reading: Reading | None, elapsed: float, notes: list[str]) -> float | None:
    found = usable(reading, elapsed, Ladder(), name)
    if found.note:
        notes.append(found.note)
    return found.value


def _factor(name: str, kind: str, factor: Factor | None, notes: list[str]) -> Factor:
    """The factor, or 1 where none was measured or what was can't be one."""
    if factor is None:
        return Factor(value=1.0)
    if not measurable(factor.value) or factor.value > FACTOR_LIMIT:
        notes.append(f"{kind} of {name}: {factor.value} is no factor (0 to {FACTOR_LIMIT:g}); 1 used")
        return Factor(value=1.0)
    return factor
