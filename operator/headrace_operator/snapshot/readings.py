"""What a reading is worth now: measured, held, or nothing. The ladder of ages in one place.

On the engine-signal path; pure. fresh -> hold the last value -> unknown (the protection page, Staleness). A value that
is NaN, infinite or negative is unknown whatever its age; unknown is never zero.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_operator.snapshot.model import Origin
from headrace_operator.snapshot.read_signals import measurable
from headrace_operator.snapshot.signals import Reading

HOLD_SECONDS: Final = 30.0  # of engines' signals, which no one policy owns; a policy's own stand in its staleness
DEGRADE_SECONDS: Final = 120.0
HOLD_INTERVALS: Final = 3  # a series scraped every 30 s is not stale after 30 s (the protection page)
DEGRADE_INTERVALS: Final = 8


class Ladder(NamedTuple):
    """Ages in seconds up to which a reading is fresh, and up to which it is held."""

    hold: float = HOLD_SECONDS
    degrade: float = DEGRADE_SECONDS


class Usable(NamedTuple):
    """A reading's value with where it stands on the ladder, and what to say of it (empty: nothing)."""

    value: float | None
    origin: Origin
    note: str


def usable(reading: Reading | None, elapsed: float, ladder: Ladder, name: str) -> Usable:
    """What ``reading`` is worth ``elapsed`` seconds after its ages were taken; ``name`` is for the note."""
    if reading is None:
        return Usable(None, "Unknown", "")
    if not measurable(reading.value) or not measurable(reading.age):
        return Usable(None, "Unknown", f"{name}: {reading.value} (age {reading.age} s) is no measurement; unknown")
    interval = reading.interval if measurable(reading.interval) else 0.0
    age = reading.age + max(0.0, elapsed)
    if age <= max(ladder.hold, HOLD_INTERVALS * interval):
        return Usable(reading.value, "Measured", "")
    if age <= max(ladder.degrade, DEGRADE_INTERVALS * interval):
        return Usable(reading.value, "Held", f"{name}: held, last read {age:.0f} s ago")
    return Usable(None, "Unknown", f"{name}: last read {age:.0f} s ago; unknown")
