"""One request whose client is slow or leaves, a router that ends, a fault of our own: all of it ends, once."""

import asyncio
import logging

import pytest

from headrace_api.table import TableQueue, TableTimeouts
from headrace_router.proxy.clock import SWEEP
from headrace_router.telemetry.events import Event
from support.fake_legs import EVENT, GENEROUS, SSE, STREAM, Bench, FakeClient, settled, two
from support.router_process import until
from support.router_table import EngineAt, routing_table


async def test_a_client_that_does_not_keep_up_holds_up_the_engine_and_the_send_limit_ends_both() -> None:
    """router.md, Timeouts: no progress to the client for `send` closes both legs; progress is what the client takes."""
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=0.0, idle=0.0, send=3 * SWEEP, unary=0.0))
    client, exchange = bench.ask(STREAM)
    assert exchange is not None
    leg = bench.legs[0]
    leg.head(200, *SSE)
    leg.body(EVENT)
    client.transport.unsent = 5
    exchange.client_paused()
    assert leg.paused
    for left in (4, 3, 2):
        client.transport.unsent = left
        await asyncio.sleep(2 * SWEEP)
    assert client.done == 0
    await until(lambda: client.done)
    assert client.transport.aborted
    assert leg.aborted
    assert bench.counted("client_gone") == bench.counted() == 1
    assert settled(bench)


async def test_a_client_that_keeps_up_again_lets_the_engine_go_on() -> None:
    bench = two()
    client, exchange = bench.ask(STREAM)
    assert exchange is not None
    leg = bench.legs[0]
    exchange.client_paused()
    leg.head(200, *SSE)
    leg.body(EVENT)
    assert leg.paused
    exchange.client_resumed()
    assert not leg.paused
    exchange.client_paused()
    leg.end()
    assert bench.in_flight == 0, "the engine has done its work"
    assert client.done == 0, "what was written is still to be taken"
    exchange.client_resumed()
    assert (client.done, client.answer.complete) == (1, True)
    assert settled(bench)


async def test_a_stream_without_its_last_bytes_taken_ends_at_the_send_limit() -> None:
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=0.0, idle=0.0, send=SWEEP, unary=0.0))
    client, exchange = bench.ask()
    assert exchange is not None
    exchange.client_paused()
    client.transport.unsent = 5
    bench.legs[0].answer()
    assert client.done == 0
    await until(lambda: client.done)
    assert (client.transport.aborted, client.answer.complete) == (True, False)
    assert settled(bench)


@pytest.mark.parametrize("when", ["waiting", "before the head", "before the first byte", "streaming", "kept"])
async def test_a_client_that_leaves_ends_the_engines_work_in_the_same_turn(when: str) -> None:
    """router.md, Streams; HAS-04 (https://github.com/kubeai-project/kubeai/issues/447)."""
    engine = EngineAt(("http://a",), limit=1)
    bench = Bench(routing_table({"a": engine}, queue=TableQueue(max=5, deadline=30.0), retry=GENEROUS))
    if when == "waiting":
        bench.ask()
    client, exchange = bench.ask(STREAM)
    assert exchange is not None
    leg = bench.legs[-1]
    if when == "waiting":
        assert bench.waiting.count == 1
    if when in ("before the first byte", "streaming"):
        leg.head(200, *SSE)
    if when == "streaming":
        leg.body(EVENT)
    if when == "kept":
        leg.head(404, "Content-Length: 3")
    exchange.client_gone()
    assert client.done == 1
    assert bench.waiting.count == 0
    if when == "waiting":
        assert not leg.over
        leg.answer()
    else:
        assert leg.aborted
        assert bench.counted() == 1
        assert bench.counted("client_error" if when == "kept" else "client_gone") == 1
    assert settled(bench)


@pytest.mark.parametrize(("old", "cut"), [(True, True), (False, False)])
async def test_a_client_that_half_closed_cant_take_what_it_got_for_the_whole(old: bool, cut: bool) -> None:
    """STR-01 with PRO-02: where the connection ends the body only a reset tells; else what was written flushes."""
    bench = two()
    client, exchange = bench.ask(STREAM, client=FakeClient(old=old))
    assert exchange is not None
    bench.legs[0].head(200, *SSE)
    bench.legs[0].body(EVENT)
    exchange.client_gone()
    assert client.transport.aborted is cut
    assert (client.answer.complete, client.done) == (False, 1)
    assert settled(bench)


@pytest.mark.parametrize("when", ["waiting", "trying", "kept", "streaming"])
async def test_shutdown_ends_every_request_once(when: str) -> None:
    """router.md, Shutdown: streams get an error event, the others a refusal."""
    engine = EngineAt(("http://a",), limit=1)
    bench = Bench(routing_table({"a": engine}, queue=TableQueue(max=5, deadline=30.0), retry=GENEROUS))
    clients = [bench.ask(STREAM)[0]]
    if when == "waiting":
        clients.append(bench.ask(STREAM)[0])
    if when == "kept":
        bench.legs[0].head(404, "Content-Length: 3")
    if when == "streaming":
        bench.legs[0].head(200, *SSE)
        bench.legs[0].body(EVENT)
    bench.proxy.end_all()
    async with asyncio.timeout(10):
        await bench.proxy.ended()
    for client in clients:
        assert client.done == 1
        assert client.sent.startswith(b"HTTP/1.1 200" if when == "streaming" else b"HTTP/1.1 503")
        assert b"shutting_down" in client.sent
    assert bench.counted() == 1
    assert settled(bench)


async def test_a_fault_of_our_own_ends_the_stream_once_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966): one status line, whatever fails later."""

    def fail(_: object) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(Event, "says_something", fail)
    bench = two()
    client, _ = bench.ask(STREAM)
    bench.legs[0].head(200, *SSE)
    with caplog.at_level(logging.ERROR):
        bench.legs[0].body(EVENT)
    assert client.sent.count(b"HTTP/1.1 ") == 1
    assert b"internal_error" in client.body
    assert client.done == 1
    assert bench.counted("router_error") == bench.counted() == 1
    assert settled(bench)


async def test_a_fault_before_the_head_is_a_500_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = two()

    def fail(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(bench.pool, "send", fail)
    with caplog.at_level(logging.ERROR):
        client, exchange = bench.ask()
    assert exchange is None
    assert client.sent.startswith(b"HTTP/1.1 500")
    assert "a bug" in caplog.text
    assert settled(bench)
