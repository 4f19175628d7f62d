"""Figures of the last seconds, for the live view; the report counts anew from all outcomes.

Off every path; pure: time is an argument. It must not grow with the run: only a window of outcomes is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

from headrace_lab.demo.observe import Publication
from headrace_lab.replay.outcome import FAILURES, Outcome, Result
from headrace_lab.replay.summary import quantile

WINDOW = 5.0  # seconds that a live figure looks back


class Live(NamedTuple):
    """One front-end, or all of them, over the window: requests/s ended, TTFT in seconds, and counts since the start."""

    per_second: float
    ttft_p50: float | None
    ttft_p95: float | None
    done: int
    shed: int
    failed: int
    lost: int


class LiveStats:
    """Takes outcomes as they end; keeps a window of them and running counts."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Outcome]] = deque()
        self._begun: deque[tuple[float, str, str]] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, at: float, outcome: Outcome) -> None:
        """``at``: the instant of the run at which it ended; never falls."""
        self._recent.append((at, outcome))
        for name in (outcome.frontend, ""):
            self._counts[name, "done"] += outcome.result is Result.DONE
            self._counts[name, "shed"] += outcome.result is Result.SHED
            self._counts[name, "failed"] += outcome.result in FAILURES
            self._counts[name, "lost"] += outcome.lost_needlessly

    def begin(self, at: float, frontend: str, engine: str) -> None:
        """An engine began to answer a front-end's request at ``at``."""
        self._begun.append((at, frontend, engine))

    def live(self, now: float, frontend: str = "") -> Live:
        """Figures of a front-end, or of all."""
        self._forget(now)
        mine = [outcome for _, outcome in self._recent if frontend in ("", outcome.frontend)]
        ttft = sorted(outcome.ttft for outcome in mine if outcome.ttft is not None)
        counts = (self._counts[frontend, name] for name in ("done", "shed", "failed", "lost"))
        return Live(len(mine) / min(WINDOW, max(now, 1.0)), quantile(ttft, 0.5), quantile(ttft, 0.95), *counts)

    def utilization(self, now: float, publications: Iterable[Publication]) -> dict[str, float]:
        """Load over declared capacity by engine: requests that it began to answer, in the tables' own work."""
        self._forget(now)
        rates = Counter((frontend, engine) for _, frontend, engine in self._begun)
        span = min(WINDOW, max(now, 1.0))
        load: dict[str, float] = {}
        for publication in publications:
            for engine, work in publication.work.items():
                load[engine] = load.get(engine, 0.0) + rates[publication.frontend, engine] / span * work
        return load

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - WINDOW:
            self._recent.popleft()
        while self._begun and self._begun[0][0] < now - WINDOW:
            self._begun.popleft()
