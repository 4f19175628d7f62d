"""Trim of an engine: how fast it makes tokens beside what its profile expects of it, as a factor on its capacity.

On the engine-signal path (the optimizer's page, Estimators; the protection page, Penalties). A sample is predicted over
measured token time at measured concurrency; against utilisation it would follow the load and swing. Without traffic it
decays to 1. It is told in steps, so that noise moves no weights. When most engines of a model are off the same way it
is the profile that is wrong: no trims then. Advances on samples, never on ticks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median, median_high, median_low
from typing import Final

LEAST: Final = 0.2
MOST: Final = 1.5
GAIN: Final = 0.3
HALF_LIFE: Final = 600.0  # seconds without traffic
# What one sample must stand on.
MIN_TOKENS: Final = 200.0
MIN_STEPS: Final = 20.0
# Each prompt that is prefilled holds up the step it is in: few of them make the mean swing (measured: 0.3 to 5).
MIN_PROMPTS: Final = 40.0
# A told trim is a multiple of ROUND, and moves when the estimate has left it by STEP. A profile that is right within
# LEAVE is right enough: nothing is told; what is told ends within STEP of 1.
LEAVE: Final = 0.15
STEP: Final = 0.1
ROUND: Final = 0.05
# Samples after which an engine says something of its model's profile.
SETTLED: Final = 5
DRIFT: Final = 0.15
DRIFT_ENDS: Final = 0.10


@dataclass(frozen=True, slots=True)
class Trim:
    """The estimate after ``samples`` samples, the last reading at ``at``; told: what is said of it."""

    factor: float = 1.0
    samples: int = 0
    at: float = -math.inf
    told: float = 1.0

    @property
    def settled(self) -> bool:
        """Whether enough was seen to judge the profile by."""
        return self.samples >= SETTLED


def observe(trim: Trim, at: float, ratio: float | None) -> Trim:
    """The trim after a reading at ``at``: a sample of predicted over measured token time, or None without traffic."""
    if not at > trim.at:
        return trim
    if ratio is None or not math.isfinite(ratio):
        share = 0.5 ** ((at - trim.at) / HALF_LIFE) if math.isfinite(trim.at) else 1.0
        return _told(replace(trim, at=at, factor=1.0 + (trim.factor - 1.0) * share))
    sample = min(MOST, max(LEAST, ratio))
    return _told(replace(trim, at=at, samples=trim.samples + 1, factor=trim.factor + GAIN * (sample - trim.factor)))


def _told(trim: Trim) -> Trim:
    if abs(trim.factor - 1.0) < (LEAVE if trim.told == 1.0 else STEP):
        return replace(trim, told=1.0)
    if abs(trim.factor - trim.told) < STEP:
        return trim
    return replace(trim, told=round(round(trim.factor / ROUND) * ROUND, 10))


def enough(tokens: float, prompts: float, seconds: float, token_time: float | None) -> bool:
    """Whether so many tokens and prompts in so many seconds, each step taking token_time seconds, make a sample."""
    if token_time is None or token_time <= 0 or prompts < MIN_PROMPTS:
        return False
    return tokens >= MIN_TOKENS and seconds >= MIN_STEPS * token_time


def drift(trims: Iterable[Trim], *, drifting: bool) -> float | None:
    """The median of a model's settled engines where it is off by more than 15 %, else None.

    With an even number both middle ones must be off the same way: one slow engine of two is no drift. What drifts
    already does so down to 10 %.
    """
    factors = [trim.factor for trim in trims if trim.settled]
    limit = DRIFT_ENDS if drifting else DRIFT
    if factors and (median_high(factors) < 1 - limit or median_low(factors) > 1 + limit):
        return median(factors)
    return None


def reason(told: float) -> str:
    """What people read."""
    if told < 1:
        return f"each token takes {1 / told:.1f} times what its profile says"
    return f"makes tokens {told:.2g} times as fast as its profile says"
