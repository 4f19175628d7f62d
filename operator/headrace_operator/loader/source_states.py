"""Metric sources as they answer: which are away, since when, and why.

On the engine-signal path; no I/O, no clocks. A source has a ladder of its own, so that people see that Prometheus is
away and not the engines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace_operator.estimators.staleness import State, ladder, observed_interval, thresholds
from headrace_operator.loader.source import SourceTarget, TargetSample

HOLD: Final = 30.0
DEGRADE: Final = 120.0
MAX_TIMES: Final = 16


@dataclass(slots=True)
class _Source:
    read_at: float | None = None
    times: list[float] = field(default_factory=list)
    problem: str = ""
    away: bool = False
    state: State = "Unknown"
    since: float | None = None


class SourceView(NamedTuple):
    """One source now: its place on the ladder since when (steady seconds), whether it is away, and what is wrong.

    read: it has answered before.
    """

    name: str
    state: State
    since: float
    away: bool
    problem: str
    read: bool


class SourceTrackers:
    """State of all metric sources that are in use."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def retarget(self, names: Iterable[str]) -> None:
        """Which sources are in use."""
        self._sources = {name: self._sources.get(name, _Source()) for name in sorted(set(names))}

    def observe(self, samples: Iterable[TargetSample]) -> None:
        """Take what came of rounds of queries."""
        for sample in samples:
            source = self._sources.get(sample.target.name) if isinstance(sample.target, SourceTarget) else None
            if source is None:
                continue
            source.problem, source.away = sample.problem, sample.outcome != "Read"
            if not source.away:
                source.read_at = sample.at
                source.times = [*source.times[-MAX_TIMES:], sample.at]

    def views(self, now: float) -> tuple[SourceView, ...]:
        """All sources at ``now``."""
        found = []
        for name, source in self._sources.items():
            age = None if source.read_at is None else max(0.0, now - source.read_at)
            state = ladder(age, thresholds(HOLD, DEGRADE, observed_interval(source.times))).state
            if state != source.state or source.since is None:
                source.state, source.since = state, now
            found.append(SourceView(name, state, source.since, source.away, source.problem, age is not None))
        return tuple(found)
