"""All places of signals as one: each target where it belongs, and one that hangs delays no other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from headrace_operator.loader.config_places import MetricSource
from headrace_operator.loader.metric_names import names_of
from headrace_operator.loader.source import (
    EngineTarget,
    RouterTarget,
    ScrapeSettings,
    SourceTarget,
    TargetSample,
)
from headrace_operator.loader.sources import Sources

NAMES = names_of("vLLM")
PAGE = 'vllm:num_requests_running{model_name="m"} 3\n'
BOUND = 30.0


class Prometheus:
    """Answers queries: its clock, ``up`` of one target, and what that target says."""

    def __init__(self) -> None:
        self.url = ""
        self.clock: Callable[[], float] = time.time
        self.scrapes: tuple[float, ...] = (-1.0,)
        self.hangs = asyncio.Event()
        self.hangs.set()
        self.warnings: list[str] = []
        self.asked: list[str] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/api/v1/query", self._answer)
        app.router.add_get("/metrics", self._page)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.hangs.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    async def _answer(self, request: web.Request) -> web.Response:
        query = (await request.post())["query"]
        assert isinstance(query, str)
        self.asked.append(query)
        await self.hangs.wait()
        now = self.clock()
        if query == "time()":
            return self._says("scalar", [now, str(now)])
        labels = {"job": "j", "instance": "far:1", "model_name": "m"}
        name = query.partition('__name__="')[2].partition('"')[0]
        known = {"up": "1", "vllm:num_requests_running": "7"}
        window = float(query.rpartition("[")[2].removesuffix("ms]")) / 1000
        values = [[now + at, known.get(name)] for at in self.scrapes if -at <= window]
        found = [{"metric": {"__name__": name, **labels}, "values": values}] if name in known and values else []
        return self._says("matrix", found)

    def _says(self, kind: str, result: Any) -> web.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}, "warnings": self.warnings}
        return web.Response(text=json.dumps(body), content_type="application/json")


@pytest.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    made = Prometheus()
    await made.start()
    yield made
    await made.stop()


def settings(*sources: MetricSource) -> ScrapeSettings:
    return ScrapeSettings(interval=0.05, timeout=5.0, sources=sources)


def described(prometheus: Prometheus, **fields: Any) -> MetricSource:
    return MetricSource(name="s", url=prometheus.url, **({"interval": "100ms", "timeout": "20s"} | fields))


def near(prometheus: Prometheus) -> EngineTarget:
    return EngineTarget("inf/near", prometheus.url, NAMES, frozenset({"m"}))


FAR = EngineTarget("inf/far", "http://far:1", NAMES, frozenset({"m"}), "s")


async def read_until(sources: Sources, enough: Callable[[list[TargetSample]], bool]) -> list[TargetSample]:
    found: list[TargetSample] = []
    async with asyncio.timeout(BOUND):
        while not enough(found):
            await asyncio.sleep(0.02)
            found += await sources.read()
    return found


def running(samples: Sequence[TargetSample]) -> dict[str, float]:
    return {
        sample.target.engine: sample.values["running"]
        for sample in samples
        if isinstance(sample.target, EngineTarget) and sample.outcome == "Read"
    }


async def test_each_target_is_read_where_it_belongs(prometheus: Prometheus) -> None:
    sources = Sources(settings(described(prometheus)))
    woken: list[None] = []
    sources.on_change = lambda: woken.append(None)
    try:
        sources.retarget([near(prometheus), FAR])
        assert set(sources.targets) == {near(prometheus), FAR}
        found = await read_until(sources, lambda found: len(running(found)) == 2)
        assert running(found) == {"inf/near": 3.0, "inf/far": 7.0}
        assert woken
        assert SourceTarget("s", prometheus.url) in {sample.target for sample in found}
    finally:
        await sources.close()


async def test_one_reading_of_everything(prometheus: Prometheus) -> None:
    sources = Sources(settings(described(prometheus)), follow=False)
    try:
        sources.retarget([near(prometheus), FAR])
        assert running(await sources.read_once()) == {"inf/near": 3.0, "inf/far": 7.0}
        assert await sources.read() == []
    finally:
        await sources.close()


async def test_a_source_that_hangs_delays_no_other(prometheus: Prometheus) -> None:
    prometheus.hangs.clear()
    sources = Sources(settings(described(prometheus)))
    sources.retarget([near(prometheus), FAR])
    try:
        count = len(await read_until(sources, lambda found: len(found) >= 5))
        assert count >= 5
        assert prometheus.asked == ["time()"]  # a server that hangs is asked one thing, not twenty
    finally:
        prometheus.hangs.set()
        await sources.close()


async def test_a_source_that_does_not_answer_in_time_says_so(prometheus: Prometheus) -> None:
    prometheus.hangs.clear()
    sources = Sources(settings(described(prometheus, timeout="200ms")), follow=False)
    sources.retarget([FAR])
    try:
        (sample,) = await sources.read_once()
        assert (sample.target, sample.outcome) == (SourceTarget("s", prometheus.url), "Failed")
        assert sample.problem == "no answer within 0.2 s"
    finally:
        prometheus.hangs.set()
        await sources.close()


async def test_warnings_are_told(prometheus: Prometheus, caplog: pytest.LogCaptureFixture) -> None:
    prometheus.warnings = ["store 10.0.0.1 unreachable"]
    sources = Sources(settings(described(prometheus)), follow=False)
    sources.retarget([FAR, EngineTarget("inf/gone", "http://gone:1", NAMES, frozenset({"m"}), "s")])
    try:
        found = await sources.read_once()
        assert "store 10.0.0.1 unreachable" in found[-1].problem
        assert {sample.outcome for sample in found} == {"Read"}  # nobody is gone by a part of the answer
        assert "store 10.0.0.1 unreachable" in caplog.text
    finally:
        await sources.close()


async def test_a_source_that_is_described_anew(prometheus: Prometheus) -> None:
    sources = Sources(settings(described(prometheus)))
    sources.retarget([FAR])
    try:
        await read_until(sources, lambda found: "inf/far" in running(found))
        sources.configure(settings())
        await read_until(sources, lambda _: True)
        prometheus.asked.clear()
        sources.configure(settings(described(prometheus, matchers={"cluster": "eu"})))
        await read_until(sources, lambda found: "inf/far" in running(found))
        assert any('cluster="eu"' in query for query in prometheus.asked)
    finally:
        await sources.close()


async def test_a_server_whose_clock_is_off(prometheus: Prometheus) -> None:
    """Ages count by the server's own clock: an hour ahead is no hour of age, and none of youth."""
    prometheus.clock = lambda: time.time() + 3600.0
    sources = Sources(settings(described(prometheus)), follow=False)
    sources.retarget([FAR])
    try:
        before = time.monotonic()
        (page, _) = await sources.read_once()
        assert before - 2.0 < page.at < time.monotonic()
    finally:
        await sources.close()


async def test_the_window_follows_the_samples(prometheus: Prometheus) -> None:
    """At first far enough for two samples of a slow series, then a little over two of their intervals."""
    prometheus.scrapes = (-16.0, -1.0)
    sources = Sources(settings(described(prometheus)), follow=False)
    sources.retarget([FAR])
    try:
        await sources.read_once()
        assert all("[150000ms]" in query for query in prometheus.asked if query != "time()")
        prometheus.asked.clear()
        await sources.read_once()
        assert all("[33000ms]" in query for query in prometheus.asked if query != "time()")
    finally:
        await sources.close()


def windows(prometheus: Prometheus) -> list[str]:
    """How far back was looked since the last call, for the series that are read."""
    asked = [query.rpartition("[")[2] for query in prometheus.asked if "num_requests_running" in query]
    prometheus.asked.clear()
    return asked


async def test_what_is_scraped_more_slowly_than_before_is_found_again(prometheus: Prometheus) -> None:
    """Seen when an interval of 5 s became one of 30 s: at most one sample fell into the window, which so stayed.

    What is gone for good is looked for once, and then told.
    """
    prometheus.scrapes = (-6.0, -1.0)
    sources = Sources(settings(described(prometheus)), follow=False)
    sources.retarget([FAR])
    try:
        await sources.read_once()
        await sources.read_once()
        assert windows(prometheus) == ["150000ms]", "15000ms]"]
        prometheus.scrapes = (-50.0, -20.0)
        assert [sample.outcome for sample in await sources.read_once()] == ["Read"]  # the source's own: none is missed
        await sources.read_once()
        assert windows(prometheus) == ["15000ms]", "150000ms]", "66000ms]"]

        prometheus.scrapes = (-75.0, -70.0)
        await sources.read_once()
        gone = await sources.read_once()
        assert [sample.outcome for sample in gone] == ["Gone", "Read"]
        assert windows(prometheus) == ["66000ms]", "150000ms]", "15000ms]"]
    finally:
        await sources.close()


async def test_nothing_to_read_asks_nothing(prometheus: Prometheus) -> None:
    sources = Sources(settings(described(prometheus)), follow=False)
    sources.retarget([RouterTarget("fe", "http://127.0.0.1:9", "elsewhere")])
    try:
        assert list(await sources.read_once()) == []
        assert prometheus.asked == []
    finally:
        await sources.close()
