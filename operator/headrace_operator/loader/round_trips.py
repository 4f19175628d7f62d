"""Round trips as the routers measure them: the median over a front-end's routers, held still against noise.

On the engine-signal path; no I/O, no clocks. Each router gives the median of its connects to an engine and how many
they are; with fewer than five it says nothing yet. A value is told anew only when it has really moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from headrace_operator.estimators.counters import is_measured
from headrace_operator.loader.source import RouterTarget, TargetSample
from headrace_operator.snapshot.signals import Reading, RoundTripSignal

MIN_SAMPLES: Final = 5.0  # connects (the API page, Network)
PROBE_INTERVAL: Final = 60.0  # seconds between a router's connects to one engine: what a reading's age is held against
REMEMBERED: Final = 600.0  # seconds after which a router that is read no more counts no more
# A move by less is noise: a share of the value, and seconds (the resolution of a connect between neighbours).
STEP: Final = 0.15
LEAST_STEP: Final = 0.0003
LONGEST: Final = 60.0  # seconds; a connect that takes longer is a failure, and no distance


@dataclass(slots=True)
class _Pair:
    routers: dict[str, tuple[float, float]] = field(default_factory=dict)
    told: float | None = None


class RoundTripTrackers:
    """State of all (front-end, engine) pairs between samples."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], _Pair] = {}

    def observe(self, samples: Iterable[TargetSample]) -> None:
        """Take samples of routers."""
        for sample in samples:
            if not isinstance(sample.target, RouterTarget) or sample.outcome != "Read" or sample.counts is None:
                continue
            for engine, (trip, number) in sample.counts.round_trips.items():
                if is_measured(trip) and 0 < trip <= LONGEST and number >= MIN_SAMPLES:
                    pair = self._pairs.setdefault((sample.target.frontend, engine), _Pair())
                    pair.routers[sample.target.url] = (sample.at, trip)

    def signals(self, now: float) -> tuple[RoundTripSignal, ...]:
        """All pairs that enough was seen of."""
        found = []
        for key, pair in sorted(self._pairs.items()):
            pair.routers = {url: seen for url, seen in pair.routers.items() if now - seen[0] <= REMEMBERED}
            if not pair.routers:
                del self._pairs[key]
                continue
            seen = median(trip for _, trip in pair.routers.values())
            if pair.told is None or abs(seen - pair.told) > max(LEAST_STEP, STEP * pair.told):
                pair.told = seen
            age = max(0.0, now - max(at for at, _ in pair.routers.values()))
            reading = Reading(value=pair.told, age=age, interval=PROBE_INTERVAL)
            found.append(RoundTripSignal(frontend=key[0], engine=key[1], seconds=reading))
        return tuple(found)
