"""The ladder of a signal's age: fresh, held, widened, unknown (the protection page, Staleness).

On the engine-signal path. Thresholds come from the policy and from the interval at which samples were really seen, so
that a slow scrape does not look like an outage. Missing metrics never shed and never take an engine out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, Literal, NamedTuple

State = Literal["Fresh", "Held", "Widened", "Unknown"]

HOLD_INTERVALS: Final = 3
DEGRADE_INTERVALS: Final = 8
LATEST_GAPS: Final = 3
# What an engine counts for whose signals alone are lost: less than its peers, never nothing.
FLOOR: Final = 0.5
# The shrinking goes in steps, so that ageing alone does not write a table each tick.
STEPS: Final = 4


class Thresholds(NamedTuple):
    """Seconds: up to hold a value is fresh, up to degrade it is held, up to twice degrade it is widened."""

    hold: float
    degrade: float


class Rung(NamedTuple):
    """Where on the ladder a signal stands, and the factor on effective capacity."""

    state: State
    factor: float


def observed_interval(times: Sequence[float]) -> float:
    """Seconds between samples as really seen: the median gap of ascending times; 0 when fewer than two are there.

    What has become slower counts from its second gap on: else it looks stale until half of the gaps are new ones.
    """
    gaps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return max(median(gaps), median(gaps[-LATEST_GAPS:])) if gaps else 0.0


def thresholds(hold: float, degrade: float, interval: float) -> Thresholds:
    """The policy's thresholds, widened to 3 and 8 observed intervals."""
    held = max(hold, HOLD_INTERVALS * interval)
    return Thresholds(held, max(degrade, DEGRADE_INTERVALS * interval, held))


def ladder(age: float | None, limits: Thresholds) -> Rung:
    """State and capacity factor of a signal of that age in seconds.

    None: never measured. That is unknown, and leaves the declared capacity as it is.
    """
    if age is None or math.isnan(age):
        return Rung("Unknown", 1.0)
    if age <= limits.hold:
        return Rung("Fresh", 1.0)
    if age <= limits.degrade:
        return Rung("Held", 1.0)
    if age > 2 * limits.degrade:
        return Rung("Unknown", FLOOR)
    progress = (age - limits.degrade) / limits.degrade if limits.degrade > 0 else 1.0
    return Rung("Widened", 1.0 - (1.0 - FLOOR) * math.ceil(progress * STEPS) / STEPS)


def relative_factors(rungs: dict[str, Rung]) -> dict[str, float]:
    """Factors of engines that are measured by one source.

    When most of them are stale it is the source that failed, not the engines: all keep factor 1 (we hold; a factor
    on every engine would shift load for no reason).
    """
    lost = [name for name, rung in rungs.items() if rung.factor < 1.0]
    if 2 * len(lost) > len(rungs) or len(lost) == len(rungs):
        return dict.fromkeys(rungs, 1.0)
    return {name: rung.factor for name, rung in rungs.items()}


def shrunk_together(rungs: dict[str, Rung], *, away: bool) -> dict[str, float]:
    """The same for a source that is itself watched (a Prometheus); away: it does not answer.

    While it is away, or most of its engines are stale, all shrink alike, by the state of the freshest of them, which
    favours nobody; and once that is unknown the declared values hold again.
    """
    lost = [rung for rung in rungs.values() if rung.factor < 1.0]
    if not away and 2 * len(lost) <= len(rungs):
        return {name: rung.factor for name, rung in rungs.items()}
    best = max(rungs.values(), key=lambda rung: (rung.state != "Unknown", rung.factor))
    return dict.fromkeys(rungs, 1.0 if best.state == "Unknown" else best.factor)
