"""What the pages of one engine's replicas say together, over a window of samples.

On the engine-signal path. Counters of one page belong to one process: when any of them falls, the process was
restarted and the window begins anew. A page whose counters stand still although it says that requests run is frozen
(or the engine hangs): its figures age from the last sample at which it moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from headrace_operator.estimators.counters import is_measured, mean_of
from headrace_operator.estimators.staleness import observed_interval

Gauge = Literal["running", "waiting", "kv_usage", "hit_rate"]
Counter = Literal[
    "prompt_tokens",
    "generation_tokens",
    "finished",
    "failed",
    "prefix_hits",
    "prefix_queries",
    "ttft_sum",
    "ttft_count",
    "tbot_sum",
    "tbot_count",
]
Signal = Gauge | Counter
COUNTERS: Final[tuple[Counter, ...]] = get_args(Counter)
GAUGES: Final[tuple[Gauge, ...]] = get_args(Gauge)
MAX_SAMPLES: Final = 256


@dataclass(frozen=True, slots=True)
class PageReading:
    """The known figures of one page at one time; what is not in ``values`` is unknown."""

    at: float
    values: Mapping[Signal, float]


@dataclass(slots=True)
class ReplicaWindow:
    """Readings of one replica within ``span`` seconds before the newest one, and one older."""

    span: float
    readings: deque[PageReading] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    moved_at: float | None = None

    def observe(self, reading: PageReading) -> bool:
        """Take one more reading; False when it is not newer than the last (nothing changes then)."""
        known = {name: value for name, value in reading.values.items() if is_measured(value)}
        reading = PageReading(reading.at, known)
        if not self.readings:
            self.moved_at = reading.at
            self.readings.append(reading)
            return True
        last = self.readings[-1]
        if not reading.at > last.at:
            return False
        if _was_reset(last, reading):
            self.readings.clear()
            self.moved_at = reading.at
        elif _is_alive(last, reading):
            self.moved_at = reading.at
        self.readings.append(reading)
        while len(self.readings) > 2 and self.readings[1].at <= reading.at - self.span:
            self.readings.popleft()
        return True

    @property
    def last(self) -> PageReading | None:
        """The newest reading."""
        return self.readings[-1] if self.readings else None

    def seconds(self) -> float:
        """Length of the window as read."""
        return self.readings[-1].at - self.readings[0].at if len(self.readings) > 1 else 0.0

    def growth(self, counter: Counter) -> float | None:
        """Increase of a counter over the window; None when it is unknown."""
        if len(self.readings) < 2:
            return None
        first, last = self.readings[0].values.get(counter), self.readings[-1].values.get(counter)
        return None if first is None or last is None else last - first

    def interval(self) -> float:
        """Seconds between samples as seen; 0 when unknown."""
        return observed_interval([reading.at for reading in self.readings])


def _was_reset(last: PageReading, new: PageReading) -> bool:
    return any(name in last.values and name in new.values and new.values[name] < last.values[name] for name in COUNTERS)


def _is_alive(last: PageReading, new: PageReading) -> bool:
    moved = any(new.values.get(name) != last.values.get(name) for name in COUNTERS)
    running = new.values.get("running")
    return moved or (running is not None and running + new.values.get("waiting", 0.0) <= 0)


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One engine over its replicas' windows; None is unknown.

    ttft, tbot: mean seconds, with the number of observations behind each. Rates per second. error_share: of finished
    requests. at: newest moment at which a replica's counters moved. interval: seconds between samples.
    """

    at: float | None = None
    interval: float = 0.0
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    ttft: float | None = None
    ttft_count: float = 0.0
    tbot: float | None = None
    tbot_count: float = 0.0
    request_rate: float | None = None
    prompt_rate: float | None = None
    generation_rate: float | None = None
    hit_share: float | None = None
    finished: float = 0.0
    error_share: float | None = None


def combine(windows: Sequence[ReplicaWindow]) -> EngineFigures:
    """The figures of an engine: counts added, ratios averaged, histograms' sums and counts added before dividing.

    A sum over replicas is scaled by all/known where some replicas were not read (never counted as zero).
    """
    read = [window for window in windows if window.readings]
    if not read:
        return EngineFigures()
    ttft_sum, ttft_count = _growth(read, "ttft_sum"), _growth(read, "ttft_count")
    tbot_sum, tbot_count = _growth(read, "tbot_sum"), _growth(read, "tbot_count")
    finished, failed = _growth(read, "finished"), _growth(read, "failed")
    queries, hits = _growth(read, "prefix_queries"), _growth(read, "prefix_hits")
    return EngineFigures(
        at=max(window.moved_at for window in read if window.moved_at is not None),
        interval=max(window.interval() for window in read),
        running=_gauge_sum(windows, "running"),
        waiting=_gauge_sum(windows, "waiting"),
        kv_usage=_mean(_latest(read, "kv_usage")),
        ttft=mean_of(ttft_sum, ttft_count),
        ttft_count=ttft_count or 0.0,
        tbot=mean_of(tbot_sum, tbot_count),
        tbot_count=tbot_count or 0.0,
        request_rate=_rate(windows, "finished"),
        prompt_rate=_rate(windows, "prompt_tokens"),
        generation_rate=_rate(windows, "generation_tokens"),
        hit_share=_hit_share(read, hits, queries),
        finished=finished or 0.0,
        error_share=None if failed is None or not finished else min(1.0, failed / finished),
    )


def _growth(windows: Sequence[ReplicaWindow], counter: Counter) -> float | None:
    known = [value for value in (window.growth(counter) for window in windows) if value is not None]
    return sum(known) if known else None


def _rate(windows: Sequence[ReplicaWindow], counter: Counter) -> float | None:
    rates = [
        value / window.seconds()
        for window, value in ((window, window.growth(counter)) for window in windows)
        if value is not None
    ]
    return sum(rates) * len(windows) / len(rates) if rates else None


def _latest(windows: Iterable[ReplicaWindow], gauge: Gauge) -> list[float]:
    pages = (window.last for window in windows)
    return [page.values[gauge] for page in pages if page is not None and gauge in page.values]


def _gauge_sum(windows: Sequence[ReplicaWindow], gauge: Gauge) -> float | None:
    values = _latest(windows, gauge)
    return sum(values) * len(windows) / len(values) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _hit_share(windows: Sequence[ReplicaWindow], hits: float | None, queries: float | None) -> float | None:
    share = mean_of(hits, queries)
    if share is None:
        share = _mean(_latest(windows, "hit_rate"))
    return None if share is None else min(1.0, share)
