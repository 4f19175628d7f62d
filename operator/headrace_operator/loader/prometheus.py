"""Signals out of a Prometheus: all engines and routers of one metric source in a few queries a round.

On the engine-signal path. Asks for raw samples with their own timestamps, so that a dead target's last value is as old
as it is and rates come from the same windows as those of scraped pages. Queries run in threads of their own: a hung
Prometheus holds up nothing but itself. A round that failed in any part gives no samples, only a word on why.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from headrace_api.units import seconds
from headrace_operator.estimators.liveness import Outcome
from headrace_operator.loader.config_places import MetricSource
from headrace_operator.loader.prometheus_http import (
    Credentials,
    PrometheusClient,
    RangeSeries,
    SourceFault,
    read_credentials,
)
from headrace_operator.loader.prometheus_match import ROUTER_NAMES, Index, read_ups
from headrace_operator.loader.prometheus_read import Answers, Reader
from headrace_operator.loader.source import PageTarget, SourceTarget, Target, TargetSample

log = logging.getLogger(__name__)

AT_ONCE: Final = 4  # queries
MAX_KEPT: Final = 200_000  # samples kept for a reader that does not come
# Seconds looked back: at first far enough to see two samples of a slow series; then two gaps of the slowest, in bounds.
FIRST_WINDOW: Final = 150.0
LEAST_WINDOW: Final = 15.0
GAPS: Final = 2.2
# The server's clock is believed to have moved only when it is off by more.
MAX_SKEW: Final = 1.0
_PLAIN: Final = re.compile(r"[a-zA-Z0-9_:]")


_Answer = tuple[list[RangeSeries], tuple[str, ...]]


class PrometheusSource:
    """Implements SignalSource on one metric source; create and use it inside one event loop."""

    def __init__(
        self, source: MetricSource, *, clock: Callable[[], float] = time.monotonic, follow: bool = True
    ) -> None:
        """clock: steady seconds that samples are stamped with. follow: ask on and on, not only when asked to."""
        self.on_change: Callable[[], None] = lambda: None
        self.source = source
        self._clock = clock
        self._follows = follow
        self._target = SourceTarget(source.name, source.url)
        self._index = Index(())
        self._reader = Reader(source.name, source.replica_labels)
        self._window = FIRST_WINDOW
        self._present: set[tuple[str, str]] = set()
        self._skew: float | None = None
        self._samples: deque[TargetSample] = deque(maxlen=MAX_KEPT)
        self._task: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=f"prometheus-{source.name}")
        self._clients = _Clients(source)
        self._told = ""

    @property
    def targets(self) -> tuple[PageTarget, ...]:
        """What is read now."""
        return self._index.targets

    def retarget(self, targets: Sequence[PageTarget]) -> None:
        """From the next round on read these and no others."""
        self._index = Index(targets)
        if self._follows and targets and self._task is None:
            self._task = asyncio.create_task(self._follow(), name=f"metric source {self.source.name}")

    async def read(self) -> Sequence[TargetSample]:
        """All samples since the last call; does not wait for new ones."""
        samples = list(self._samples)
        self._samples.clear()
        return samples

    async def read_once(self) -> Sequence[TargetSample]:
        """One round, waited for."""
        return await self._round() if self._index.targets else ()

    async def close(self) -> None:
        """Stop asking; frees connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._clients.close()

    async def _follow(self) -> None:
        known: set[tuple[Target, Outcome]] = set()
        while True:
            started = time.monotonic()
            samples = await self._round()
            self._samples.extend(samples)
            # What newly fails or comes back is worth a round of the loop; that it still fails is not.
            failing: set[tuple[Target, Outcome]] = {
                (sample.target, sample.outcome) for sample in samples if sample.outcome != "Read"
            }
            if failing != known:
                known = failing
                self.on_change()
            pause = seconds(self.source.interval) - (time.monotonic() - started)
            await asyncio.sleep(max(0.05, pause))

    async def _round(self) -> list[TargetSample]:
        """One round of queries; the last sample is the source's own."""
        try:
            samples, warnings = await self._ask(self._index)
        except SourceFault as error:
            self._tell(str(error))
            return [TargetSample(self._target, self._clock(), "Failed", problem=str(error))]
        except Exception as error:  # a bug in here must not end the reading for good
            if self._told != repr(error):
                self._told = repr(error)
                log.exception("metric source %s: this round failed (told once)", self.source.name)
            return [TargetSample(self._target, self._clock(), "Failed", problem=type(error).__name__)]
        told = f"a part may be missing: {'; '.join(sorted(set(warnings))[:3])}" if warnings else ""
        self._tell(told)
        return [*samples, TargetSample(self._target, self._clock(), "Read", problem=told)]

    def _tell(self, problem: str) -> None:
        """Log what is newly wrong, and that it is right again."""
        if problem == self._told:
            return
        self._told = problem
        if problem:
            log.warning("metric source %s: %s", self.source.name, problem)
        else:
            log.info("metric source %s: answers in full", self.source.name)

    async def _ask(self, index: Index) -> tuple[list[TargetSample], list[str]]:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, self._clients.refresh)
        # The first question alone: a server that hangs is not asked fifteen times.
        skew = await loop.run_in_executor(self._pool, self._clock_skew)
        found = await self._answers(index)
        if self._window < FIRST_WINDOW and await loop.run_in_executor(self._pool, self._vanished, found):
            # Gone, or scraped at longer intervals than before: that is seen from further away alone.
            self._window = FIRST_WINDOW
            found = await self._answers(index)
        warnings = [warning for _, told in found for warning in told]
        return await loop.run_in_executor(self._pool, self._understood, index, found, skew), warnings

    async def _answers(self, index: Index) -> list[_Answer]:
        """The answers to all queries of a round. Raises what the first that failed raised."""
        loop = asyncio.get_running_loop()
        asked = [
            loop.run_in_executor(self._pool, self._clients.series, query)
            for query in queries(index, self._window, self.source.matchers)
        ]
        found: list[_Answer] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    def _vanished(self, found: Sequence[_Answer]) -> bool:
        """Whether something has no sample in this window that lately had one in it."""
        return not self._present <= newest_by_origin(found).keys()

    def _understood(self, index: Index, found: Sequence[_Answer], skew: float) -> list[TargetSample]:
        ups = read_ups(found[0][0])
        complete = not any(told for _, told in found)
        series = [one for answer, _ in found[1:] for one in answer]
        # Of the series that are read, not of all that this Prometheus scrapes: other jobs may be slow.
        gap = max((one.values[-1][0] - one.values[-2][0] for one in series if len(one.values) > 1), default=0.0)
        if gap > 0:
            slack = 2 * seconds(self.source.interval)
            self._window = min(FIRST_WINDOW, max(LEAST_WINDOW, GAPS * gap, gap + slack))
        since = self._clock() - skew - self._window
        self._present = {origin for origin, newest in newest_by_origin(found).items() if newest >= since}
        return self._reader.read(index, Answers(ups, series, self._clock(), skew, complete))

    def _clock_skew(self) -> float:
        """Steady seconds less the server's time; held still while the two agree, or ages would wobble."""
        before = self._clock()
        server = self._clients.clock()
        now = self._clock()
        seen = (before + now) / 2 - server
        if self._skew is None or abs(seen - self._skew) > MAX_SKEW + (now - before) / 2:
            self._skew = seen
        return self._skew


class _Clients:
    """A client for each thread, made anew when a secret has changed."""

    def __init__(self, source: MetricSource) -> None:
        self._source = source
        self._credentials = Credentials()
        self._mine = threading.local()
        self._all: list[PrometheusClient] = []

    def refresh(self) -> None:
        self._credentials = read_credentials(self._source)

    def clock(self) -> float:
        return self._client().clock()

    def series(self, query: str) -> tuple[list[RangeSeries], tuple[str, ...]]:
        return self._client().series(query)

    def close(self) -> None:
        for client in self._all:
            client.close()

    def _client(self) -> PrometheusClient:
        held: tuple[Credentials, PrometheusClient] | None = getattr(self._mine, "client", None)
        if held is not None and held[0] == self._credentials:
            return held[1]
        if held is not None:
            held[1].close()
            self._all.remove(held[1])
        client = PrometheusClient(self._source, self._credentials)
        self._mine.client = (self._credentials, client)
        self._all.append(client)
        return client


def newest_by_origin(found: Sequence[_Answer]) -> dict[tuple[str, str], float]:
    """Time of the newest sample by (job, instance), of all answers but that of ``up``."""
    newest: dict[tuple[str, str], float] = {}
    for series, _ in found[1:]:
        for one in series:
            if one.values:
                key = (one.metric.get("job", ""), one.metric.get("instance", ""))
                newest[key] = max(newest.get(key, 0.0), one.values[-1][0])
    return newest


def queries(index: Index, window: float, matchers: Mapping[str, str]) -> list[str]:
    """The queries of one round: ``up`` first, then each metric for all targets together; routers' in one."""
    asked: list[tuple[str, ...]] = [("up",), *((name,) for name in sorted(index.names()))]
    if index.reads_routers():
        asked.append(tuple(sorted(ROUTER_NAMES)))
    return [_selector(names, window, matchers) for names in asked]


def _selector(names: tuple[str, ...], window: float, matchers: Mapping[str, str]) -> str:
    """A range selector of raw samples."""
    if len(names) == 1:
        name = f"__name__={quoted(names[0])}"
    else:
        name = f"__name__=~{quoted('|'.join(''.join(map(_escaped, each)) for each in names))}"
    chosen = [name, *(f"{key}={quoted(text)}" for key, text in matchers.items())]
    return f"{{{','.join(chosen)}}}[{max(1, round(window * 1000))}ms]"


def _escaped(letter: str) -> str:
    """A letter as a regular expression that means itself (RE2)."""
    return letter if _PLAIN.match(letter) or not letter.isascii() else f"\\{letter}"


def quoted(text: str) -> str:
    """A string of PromQL: the library puts values between quotes as they are, whatever they hold."""
    plain = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(plain.get(letter, letter) for letter in text) + '"'
