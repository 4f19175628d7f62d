"""Counters to increases, histograms to means: what two readings of a monotone series say, and when they say nothing.

On the engine-signal path. A reset, a reading that is not newer, and a value that is not a finite number >= 0 are
unknown: they give None, never zero and never a negative rate.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MAX_VALUE: Final = 1e15  # a counter of tokens reaches it after 300 years at 100,000 a second


class Sample(NamedTuple):
    """One reading of a counter: time in seconds, and the counter's value."""

    at: float
    value: float


class Increase(NamedTuple):
    """How much a counter grew, and in how many seconds."""

    amount: float
    seconds: float

    @property
    def per_second(self) -> float:
        """The mean rate over the interval."""
        return self.amount / self.seconds


def is_measured(value: float | None) -> bool:
    """Whether a value is one that a healthy exporter can report: finite, not negative, not absurd."""
    return value is not None and 0 <= value <= MAX_VALUE


def increase(earlier: Sample | None, later: Sample | None) -> Increase | None:
    """Growth between two readings; None when it is unknown (missing, not newer, not a number, or a reset)."""
    if earlier is None or later is None or not (is_measured(earlier.value) and is_measured(later.value)):
        return None
    seconds = later.at - earlier.at
    if not math.isfinite(seconds) or seconds <= 0 or later.value < earlier.value:
        return None
    return Increase(later.value - earlier.value, seconds)


def mean_of(total: float | None, count: float | None) -> float | None:
    """Mean of a histogram's observations from the increases of its sum and its count; None without observations."""
    if total is None or count is None or not (is_measured(total) and is_measured(count)) or count <= 0:
        return None
    return total / count
