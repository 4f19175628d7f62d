"""The scrape against small servers on loopback: each kind of wrong answer, and a hung one that delays nobody."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from headrace_operator.loader import scrape
from headrace_operator.loader.metric_names import names_of
from headrace_operator.loader.scrape import Scraper
from headrace_operator.loader.source import EngineTarget, RouterTarget, ScrapeSettings, Target, TargetSample

GOOD = 'vllm:num_requests_running{model_name="m"} 3\n'
FAST = ScrapeSettings(interval=0.05, timeout=1.0, concurrency=4, max_page=10_000)


@asynccontextmanager
async def serving(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def engine_target(url: str) -> EngineTarget:
    return EngineTarget("inf/e", url, names_of("vLLM"), frozenset({"m"}))


async def one(target: Target, settings: ScrapeSettings = FAST) -> TargetSample:
    scraper = Scraper(settings, follow=False)
    scraper.retarget([target])
    try:
        return next(iter(await scraper.read_once()))
    finally:
        await scraper.close()


async def test_a_good_page() -> None:
    async def page(request: web.Request) -> web.Response:
        assert request.path == "/metrics"
        assert "Authorization" not in request.headers
        return web.Response(text=GOOD)

    async with serving(page) as url:
        sample = await one(engine_target(f"{url}/"))
    assert (sample.outcome, sample.values, sample.problem) == ("Read", {"running": 3.0}, "")


async def test_a_name_leads_to_no_machines_own_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write an engine may make a name say anything; what answers at link-local addresses is nobody's engine."""
    asked: list[str] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text=GOOD)

    async with serving(page) as url:
        here = url.replace("127.0.0.1", "localhost")
        assert (await one(engine_target(here))).outcome == "Read"
        monkeypatch.setattr(scrape, "is_anybodys", lambda _: True, raising=False)
        sample = await one(engine_target(here))
    assert (sample.outcome, len(asked)) == ("Failed", 1)
    assert sample.problem == "can't connect: localhost has no address that an engine can have"


async def test_a_router_page() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text='headrace_offered_requests_total{frontend="fe",policy="p",policy_namespace="n"} 1\n')

    async with serving(page) as url:
        good = await one(RouterTarget("fe", url))
        foreign = await one(RouterTarget("other", url))
    assert good.outcome == "Read"
    assert good.counts is not None
    assert foreign.outcome == "Answered"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(web.Response(status=503, text=GOOD), "answered 503", id="b: an error with a page"),
        pytest.param(
            web.Response(text="<html>log in</html>\n", content_type="text/html"), "no known metric", id="c: html"
        ),
        pytest.param(web.Response(status=302, headers={"Location": "/login"}), "answered 302", id="d: a redirect"),
        pytest.param(web.Response(text="#" * 20_000), "larger than 10000 bytes", id="too large"),
    ],
)
async def test_answers_that_are_no_page(answer: web.Response, problem: str) -> None:
    """Case PRM-04: an error, a login page or a redirect is a failed reading, not an idle engine; redirects end here.

    https://github.com/4n4nd/prometheus-api-client-python/issues/207
    """
    asked = []

    async def page(request: web.Request) -> web.Response:
        asked.append(request.path)
        return answer

    async with serving(page) as url:
        sample = await one(engine_target(url))
    assert (sample.outcome, sample.values) == ("Answered", {})
    assert problem in sample.problem
    assert asked == ["/metrics"]


async def test_a_cut_body_is_failed() -> None:
    """Case PRM-04 g: a page that ends before its length is no page."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + GOOD.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server:
        sample = await one(engine_target(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    assert (sample.outcome, sample.values) == ("Failed", {})


async def test_nothing_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        sample = await one(engine_target(f"http://127.0.0.1:{bound.getsockname()[1]}"))
    assert (sample.outcome, sample.problem) == ("Refused", "connect refused")


async def test_a_name_that_is_no_host_is_not_death() -> None:
    sample = await one(engine_target("http://no-such-host.invalid:1"), ScrapeSettings(timeout=5.0))
    assert sample.outcome == "Failed"


async def test_hung_engines_delay_nobody() -> None:
    """A hung target waits in its own lane: more of them than there are places, and the others are read on time."""
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response(text=GOOD)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=GOOD)

    settings = ScrapeSettings(interval=0.05, timeout=0.2, concurrency=3, max_page=10_000)
    async with serving(hang) as hung, serving(page) as good:
        scraper = Scraper(settings)
        hanging = [EngineTarget(f"inf/h{number}", hung, names_of("vLLM"), frozenset({"m"})) for number in range(8)]
        scraper.retarget([*hanging, engine_target(good)])
        read, failed, end = 0, 0, time.monotonic() + 60
        while (read < 20 or failed < 8) and time.monotonic() < end:
            samples = await scraper.read()
            read += sum(sample.outcome == "Read" for sample in samples)
            failed += sum(sample.outcome == "Failed" for sample in samples)
            await asyncio.sleep(0.02)
        release.set()
        await scraper.close()
    assert read >= 20
    assert failed >= 8


async def test_changes_wake_and_targets_can_go() -> None:
    woken = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=GOOD)

    async with serving(page) as url:
        scraper = Scraper(FAST)
        scraper.on_change = woken.set
        scraper.retarget([engine_target(url)])
        async with asyncio.timeout(30):
            await woken.wait()
        assert len(scraper.targets) == 1
        scraper.configure(ScrapeSettings(concurrency=2))
        scraper.retarget([])
        assert scraper.targets == ()
        await scraper.close()
