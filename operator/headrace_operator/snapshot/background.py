"""Background: what an engine carries that our routers did not send, as work that is subtracted from its capacity.

On the engine-signal path; pure. The loader compares the engine's own request rate with what the routers sent; below a
twentieth of the engine's rate the difference is noise of two clocks (the API page, Several policies).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Final

import msgspec

from headrace_operator.snapshot.model import EngineState
from headrace_operator.snapshot.readings import Ladder, usable
from headrace_operator.snapshot.signals import EngineSignal
from headrace_operator.snapshot.work import reference_work_of

NOISE_SHARE: Final = 0.05


def with_background(
    engines: Iterable[EngineState], signals: Iterable[EngineSignal], *, elapsed: float, notes: list[str]
) -> tuple[EngineState, ...]:
    """The engines with ``background`` in replica-seconds per second, at most their ready replicas."""
    measured = {signal.engine: signal for signal in signals if signal.background is not None}
    return tuple(
        _with(engine, measured[engine.id], elapsed, notes) if engine.id in measured else engine for engine in engines
    )


def _with(engine: EngineState, signal: EngineSignal, elapsed: float, notes: list[str]) -> EngineState:
    foreign = usable(signal.background, elapsed, Ladder(), f"background of {engine.id}")
    whole = usable(signal.request_rate, elapsed, Ladder(), f"request rate of {engine.id}")
    notes.extend(note for note in (foreign.note, whole.note) if note)
    work = reference_work_of(engine)
    if foreign.value is None or whole.value is None or not isfinite(work):
        return engine
    if foreign.value <= NOISE_SHARE * whole.value:
        return engine
    notes.append(f"{engine.id}: {foreign.value:.3g} requests/s on it are not ours; subtracted from its capacity")
    return msgspec.structs.replace(engine, background=min(engine.ready, foreign.value * work))
