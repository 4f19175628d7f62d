"""Demand of one source from rate readings: an EWMA that a CUSUM resets when the level has shifted.

On the engine-signal path. Constants are those of the optimizer's page, Estimators: tau 60 s, CUSUM on
innovation/deviation with drift 0.75 and limit 4, variance an EWMA (0.05) of squared innovations clipped at 9 x itself.
No trend term (it doubled movement of weights). Advances on new readings only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from headrace_operator.estimators.counters import Increase, is_measured

TAU: Final = 60.0  # seconds
DRIFT: Final = 0.75  # standard deviations
LIMIT: Final = 4.0  # standard deviations
VARIANCE_GAIN: Final = 0.05
CLIP: Final = 9.0  # times the variance
# A perfectly even source must not make the smallest later change look like a shift: one percent of the level.
FLOOR: Final = 0.01


@dataclass(frozen=True, slots=True)
class DemandEstimate:
    """What is believed of one source's rate.

    level: requests/s. reading_variance: of one reading around the level. level_variance: of the level itself.
    span: seconds of readings in the level since the last reset. high, low: the two CUSUMs. last: last reading.
    """

    at: float
    level: float
    reading_variance: float
    level_variance: float
    span: float
    high: float = 0.0
    low: float = 0.0
    last: float = 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the level, requests/s."""
        return math.sqrt(self.level_variance)


def observe(estimate: DemandEstimate | None, at: float, reading: Increase) -> DemandEstimate | None:
    """The estimate after one more reading that ended at ``at``; a reading that is not newer changes nothing.

    A first reading stands for itself, with the variance of a Poisson count.
    """
    if not (math.isfinite(at) and is_measured(reading.amount) and reading.seconds > 0):
        return estimate
    rate = reading.per_second
    if estimate is None:
        variance = max(reading.amount, 1.0) / reading.seconds**2
        return DemandEstimate(at, rate, variance, variance, reading.seconds, last=rate)
    if at <= estimate.at:
        return estimate
    return _advance(estimate, at, rate, reading.seconds)


def _advance(old: DemandEstimate, at: float, rate: float, seconds: float) -> DemandEstimate:
    variance = max(old.reading_variance, (FLOOR * old.level) ** 2, 1e-12)
    innovation = rate - old.level
    score = innovation / math.sqrt(variance)
    high = max(0.0, old.high + score - DRIFT)
    low = max(0.0, old.low - score - DRIFT)
    variance += VARIANCE_GAIN * (min(innovation**2, CLIP * variance) - variance)
    if high > LIMIT or low > LIMIT:
        return DemandEstimate(at, (rate + old.last) / 2, variance, variance / 2, 2 * seconds, last=rate)
    # Until tau has passed the level is the plain mean of the readings since the reset: the first one is not special.
    gain = max(1.0 - math.exp(-seconds / TAU), seconds / (old.span + seconds))
    return replace(
        old,
        at=at,
        level=old.level + gain * innovation,
        reading_variance=variance,
        level_variance=(1 - gain) ** 2 * old.level_variance + gain**2 * variance,
        span=old.span + seconds,
        high=high,
        low=low,
        last=rate,
    )


@dataclass(frozen=True, slots=True)
class DecayingSum:
    """A sum that forgets with time constant ``tau``: two of them make a mean that follows the recent mix."""

    at: float = -math.inf
    value: float = 0.0
    tau: float = TAU

    def add(self, at: float, amount: float) -> DecayingSum:
        """The sum after ``amount`` more at ``at``; what is not newer or not a number changes nothing."""
        if not (math.isfinite(at) and at > self.at and is_measured(amount)):
            return self
        return DecayingSum(at, self.value * math.exp(-(at - self.at) / self.tau) + amount, self.tau)


@dataclass(frozen=True, slots=True)
class SteadyRate:
    """A rate over the last minutes, for comparing two counters of the same events; unknown at first."""

    events: DecayingSum = DecayingSum()
    seconds: DecayingSum = DecayingSum()

    def add(self, at: float, events: float, seconds: float) -> SteadyRate:
        """The rate after ``events`` more in ``seconds`` that ended at ``at``."""
        return SteadyRate(self.events.add(at, events), self.seconds.add(at, seconds))

    def per_second(self) -> float | None:
        """Events a second; None until half of TAU was seen."""
        return self.events.value / self.seconds.value if self.seconds.value >= TAU / 2 else None
