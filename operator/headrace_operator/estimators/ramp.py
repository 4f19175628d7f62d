"""Slow start of new capacity: how much of an engine's ready replicas counts while they warm up.

On the engine-signal path. Engines present at the first reading have no ramp; what comes later (a replica more, an
engine back from the dead) is phased in over the engine's ``rampUp``, in steps, so that it does not write each tick.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

STEPS: Final = 8
# Something must flow at once, or a cold engine never warms.
FIRST_STEP: Final = 1


@dataclass(frozen=True, slots=True)
class Ramp:
    """ready: replicas seen last. steady: those that count in full. since: when the rest came."""

    ready: float
    steady: float
    since: float

    def counted(self, now: float, seconds: float) -> float:
        """Replicas that count at ``now`` with a ramp of ``seconds``."""
        if self.ready <= self.steady:
            return self.ready
        progress = 1.0 if seconds <= 0 else max(0.0, now - self.since) / seconds
        step = min(STEPS, FIRST_STEP + math.floor(progress * (STEPS - FIRST_STEP)))
        return self.steady + (self.ready - self.steady) * step / STEPS

    def factor(self, now: float, seconds: float) -> float:
        """The multiplier on effective capacity, in (0, 1]."""
        return self.counted(now, seconds) / self.ready if self.ready > 0 else 1.0


def observe(ramp: Ramp | None, now: float, ready: float, seconds: float, *, first: bool) -> Ramp:
    """The ramp after ``ready`` replicas were seen. first: the engine belongs to the operator's first view."""
    if ramp is None:
        return Ramp(ready, ready if first else 0.0, now)
    if ready > ramp.ready:
        return Ramp(ready, ramp.counted(now, seconds), now)
    return Ramp(ready, min(ramp.steady, ready), ramp.since)
