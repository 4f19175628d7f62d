"""What the pages of one engine's replicas say together, over a window of samples.

On the engine-signal path. Counters of one page belong to one process: when any of them falls, the process was
restarted and the window begins anew. A page whose counters stand still although it says that requests run is frozen
(or the engine hangs): its figures age from the last sample at which it moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Final, Literal, get_args

from headrace_operator.estimators.counters import is_measured, mean_of
from headrace_operator.estimators.demand import DecayingSum, SteadyRate
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
# Prompt tokens that must have been looked up lately before their hit share is believed.
MIN_QUERIED: Final = 10_000.0


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
    hits: DecayingSum = field(default_factory=DecayingSum)
    queries: DecayingSum = field(default_factory=DecayingSum)
    finished: SteadyRate = field(default_factory=SteadyRate)
    latest: dict[Signal, float] = field(default_factory=dict)

    def observe(self, reading: PageReading) -> bool:
        """Take one more reading; False when it is not newer than the last (nothing changes then)."""
        known = {name: value for name, value in reading.values.items() if is_measured(value)}
        reading = PageReading(reading.at, known)
        if self.readings and not reading.at > self.readings[-1].at:
            return False
        was_reset = _was_reset(self.latest, known)
        self.latest = known if was_reset else {**self.latest, **known}
        if not self.readings:
            self.moved_at = reading.at
            self.readings.append(reading)
            return True
        last = self.readings[-1]
        if was_reset:
            self.readings.clear()
            self.moved_at = reading.at
        else:
            self._look_up(last, reading)
            if "finished" in reading.values and "finished" in last.values:
                amount = reading.values["finished"] - last.values["finished"]
                self.finished = self.finished.add(reading.at, amount, reading.at - last.at)
            if _is_alive(last, reading):
                self.moved_at = reading.at
        self.readings.append(reading)
        while len(self.readings) > 2 and self.readings[1].at <= reading.at - self.span:
            self.readings.popleft()
        return True

    def _look_up(self, last: PageReading, new: PageReading) -> None:
        """The prefix cache's counters go into a slow mean of their own: over a short window the share swings."""
        hits, queries = (
            new.values[name] - last.values[name] if name in new.values and name in last.values else None
            for name in ("prefix_hits", "prefix_queries")
        )
        if hits is not None and queries is not None:
            self.hits = self.hits.add(new.at, hits)
            self.queries = self.queries.add(new.at, queries)

    @property
    def last(self) -> PageReading | None:
        """The newest reading."""
        return self.readings[-1] if self.readings else None

    def seconds(self) -> float:
        """Length of the window as read."""
        return self.readings[-1].at - self.readings[0].at if len(self.readings) > 1 else 0.0

    def since(self, at: float) -> ReplicaWindow:
        """The same window from its last reading at or before ``at`` on (all of it where none is that old)."""
        first = max((number for number, reading in enumerate(self.readings) if reading.at <= at), default=0)
        kept = deque(list(self.readings)[first:], maxlen=MAX_SAMPLES)
        return ReplicaWindow(self.span, kept, self.moved_at, self.hits, self.queries, self.finished)

    def growth(self, counter: Counter) -> float | None:
        """Increase of a counter over the window; None when it is unknown."""
        if len(self.readings) < 2:
            return None
        first, last = self.readings[0].values.get(counter), self.readings[-1].values.get(counter)
        return None if first is None or last is None else last - first

    def interval(self) -> float:
        """Seconds between samples as seen; 0 when unknown."""
        return observed_interval([reading.at for reading in self.readings])


def _was_reset(latest: Mapping[Signal, float], new: Mapping[Signal, float]) -> bool:
    """Whether a counter fell below what it showed last, also if pages between lacked it."""
    return any(name in latest and name in new and new[name] < latest[name] for name in COUNTERS)


def _is_alive(last: PageReading, new: PageReading) -> bool:
    moved = any(new.values.get(name) != last.values.get(name) for name in COUNTERS)
    running = new.values.get("running")
    return moved or (running is not None and running + new.values.get("waiting", 0.0) <= 0)


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One engine over its replicas' windows; None is unknown.

    mean_running: over the window. ttft, tbot: mean seconds, and how many observations stand behind each. Rates per
    second; their deviation: what chance alone makes of a count; steady_rate: over minutes, once half a minute was seen.
    error_share: of finished requests. at: newest moment at which a replica's counters moved. interval: seconds between
    samples. seconds: length of the longest window.
    """

    at: float | None = None
    seconds: float = 0.0
    interval: float = 0.0
    running: float | None = None
    mean_running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    ttft: float | None = None
    ttft_count: float = 0.0
    tbot: float | None = None
    tbot_count: float = 0.0
    request_rate: float | None = None
    request_rate_deviation: float = 0.0
    steady_rate: float | None = None
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
    return EngineFigures(
        at=max(window.moved_at for window in read if window.moved_at is not None),
        seconds=max(window.seconds() for window in read),
        interval=max(window.interval() for window in read),
        running=_gauge_sum(windows, "running"),
        mean_running=_mean_running(windows),
        waiting=_gauge_sum(windows, "waiting"),
        kv_usage=_mean(_latest(read, "kv_usage")),
        ttft=mean_of(ttft_sum, ttft_count),
        ttft_count=ttft_count or 0.0,
        tbot=mean_of(tbot_sum, tbot_count),
        tbot_count=tbot_count or 0.0,
        request_rate=_rate(windows, "finished"),
        request_rate_deviation=_deviation(windows, "finished"),
        steady_rate=_steady_rate(windows),
        prompt_rate=_rate(windows, "prompt_tokens"),
        generation_rate=_rate(windows, "generation_tokens"),
        hit_share=_hit_share(read),
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


def _steady_rate(windows: Sequence[ReplicaWindow]) -> float | None:
    rates = [window.finished.per_second() for window in windows]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def _deviation(windows: Sequence[ReplicaWindow], counter: Counter) -> float:
    """Standard deviation of ``_rate`` if the counter's events came by chance; at least that of one event."""
    rate = _rate(windows, counter)
    seconds = max((window.seconds() for window in windows), default=0.0)
    return 0.0 if rate is None or seconds <= 0 else sqrt(max(rate, 1.0 / seconds) / seconds)


def _latest(windows: Iterable[ReplicaWindow], gauge: Gauge) -> list[float]:
    pages = (window.last for window in windows)
    return [page.values[gauge] for page in pages if page is not None and gauge in page.values]


def _gauge_sum(windows: Sequence[ReplicaWindow], gauge: Gauge) -> float | None:
    values = _latest(windows, gauge)
    return sum(values) * len(windows) / len(values) if values else None


def _mean_running(windows: Sequence[ReplicaWindow]) -> float | None:
    """Requests running, averaged over the readings of each window, which the means of latencies are over too."""
    means = [
        mean
        for window in windows
        if (mean := _mean([page.values["running"] for page in window.readings if "running" in page.values])) is not None
    ]
    return sum(means) * len(windows) / len(means) if means else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _hit_share(windows: Sequence[ReplicaWindow]) -> float | None:
    queries = sum(window.queries.value for window in windows)
    if queries >= MIN_QUERIED:
        return min(1.0, sum(window.hits.value for window in windows) / queries)
    counted = any("prefix_queries" in window.readings[-1].values for window in windows)
    share = None if counted else _mean(_latest(windows, "hit_rate"))
    return None if share is None else min(1.0, share)
