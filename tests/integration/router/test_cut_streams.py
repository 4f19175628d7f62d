"""Answers that end early: cut, broken or stalled by the engine, abandoned by the client."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from headrace_api.table import TableTimeouts
from headrace_router.telemetry.events import Event
from support.fake_engine import EVENT, Exchange, FakeEngine, streams
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, metric, reads, router_in_loop, until
from support.router_table import routing_table

ASK = {"model": "m", "stream": True}
SHORT = TableTimeouts(connect=10.0, first_byte=20.0, idle=0.3, send=20.0, unary=0.0)


def error_code(body: bytes) -> str:
    """The code of the one error event at the end of a cut stream."""
    last = body.rpartition(b"\n\ndata: ")[2]
    assert last.endswith(b"\n\n")
    return str(json.loads(last)["error"]["code"])


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_cut_stream_gets_one_error_event_and_no_end(tmp_path: Path, how: str) -> None:
    """STR-01 (https://github.com/ai-dynamo/dynamo/pull/8430): a data: error frame, never a clean end, no retry."""

    async def cut(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        exchange.close() if how == "close" else exchange.reset()

    async with FakeEngine(cut) as engine, FakeEngine(streams(b"{}")) as other:
        table = routing_table({"a": engine.url, "b": other.url})
        async with router_in_loop(tmp_path / "t", table) as router:
            answers = [await ask(router.address, post(ASK)) for _ in range(2)]
            answer = next(answer for answer in answers if answer.header("x-headrace-engine") == "a")
            assert (answer.status, answer.complete, answer.framing) == (200, False, "chunked")
            assert answer.body.startswith(EVENT + b"\n\ndata: ")
            assert error_code(answer.body) == "engine_cut"
            assert b"finish_reason" not in answer.body
            assert b"[DONE]" not in answer.body
            assert len(engine.requests) == len(other.requests) == 1
            assert (
                await metric(router.admin_address, "headrace_requests_total", engine="inference/a", outcome="cut") == 1
            )
            assert in_flight(router) == 0


@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
async def test_a_cut_json_answer_is_aborted(tmp_path: Path, length: bool) -> None:
    """STR-01, variant application/json: aborted, without a terminating chunk and without the router's words."""

    async def cut(exchange: Exchange) -> None:
        framing = b"Content-Length: 100" if length else b"Transfer-Encoding: chunked"
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + framing + b"\r\n\r\n")
        await exchange.send(b'{"half":' if length else b'8\r\n{"half":\r\n')
        exchange.close()

    async with FakeEngine(cut) as engine, router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router:
        answer = await ask(router.address, post({"model": "m"}))
        assert (answer.status, answer.complete, answer.body) == (200, False, b'{"half":')


async def test_a_stream_that_is_cut_within_a_chunk_is_cut_for_the_client_too(tmp_path: Path) -> None:
    """STR-01 (https://github.com/true-async/server/issues/171): what came passes unchanged, chunk boundaries too; there
    is no room for an event, and never a clean end."""

    async def cut(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        await exchange.send(b"0100\r\ndata: {")
        exchange.close()

    async with (
        FakeEngine(cut) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post(ASK))
        raw = await client.to_end()
        body = raw.partition(b"\r\n\r\n")[2]
        assert body == b"%x\r\n%b\r\n0100\r\ndata: {" % (len(EVENT), EVENT)
        assert in_flight(router) == 0


async def test_a_cut_answer_to_an_http_1_0_client_is_a_reset(tmp_path: Path) -> None:
    """STR-01 with PRO-02: where the end of the connection frames the body, a plain close would look complete."""

    async def cut(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        )
        exchange.close()

    async with (
        FakeEngine(cut) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post({"model": "m"}, version="1.0"))
        await client.to_end()
        assert client.reset


async def test_broken_framing_never_makes_a_second_head(tmp_path: Path) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966): one status line, then valid chunks or nothing."""

    seen = asyncio.Event()

    async def broken(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        await seen.wait()
        await exchange.send(b"zz\r\n")
        await exchange.closed_by_router()

    async with (
        FakeEngine(broken) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post(ASK))
        await client.until(EVENT)
        seen.set()
        answer = await client.answer()
        assert answer.raw.count(b"HTTP/1.1") == 1
        assert answer.body.startswith(EVENT)
        assert error_code(answer.body) == "engine_cut"


async def test_a_fault_of_our_own_in_mid_stream_never_makes_a_second_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """STR-02, variant: an exception in the router's own per-event hook after the first event."""

    def fail(_: object) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(Event, "says_something", fail)
    script = streams(b'{"choices":[]}')
    async with FakeEngine(script) as engine, router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router:
        answer = await ask(router.address, post(ASK))
        assert answer.raw.count(b"HTTP/1.1") == 1
        assert not answer.complete
        assert error_code(answer.body) == "internal_error"
        assert in_flight(router) == 0
        assert "relaying an answer failed" in caplog.text


@pytest.mark.parametrize("silent", [False, True], ids=["closes", "is silent"])
async def test_nothing_is_resumed_elsewhere_after_the_first_byte(tmp_path: Path, silent: bool) -> None:
    """RET-04 (https://github.com/BerriAI/litellm/issues/40404): two events, an error event, an end; B gets nothing."""
    closed = asyncio.Event()

    async def two(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT + EVENT)
        if silent:
            await exchange.closed_by_router()
            closed.set()
        exchange.close()

    async with FakeEngine(two) as a, FakeEngine(two) as b:
        table = routing_table({"a": a.url, "b": b.url}, timeouts=SHORT)
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert answer.body.startswith(EVENT * 2)
            assert error_code(answer.body) == ("idle_timeout" if silent else "engine_cut")
            assert not answer.complete
            assert len(a.requests) + len(b.requests) == 1
            if silent:
                await asyncio.wait_for(closed.wait(), 20)


async def test_head_and_close_before_the_first_body_byte_is_retried(tmp_path: Path) -> None:
    """RET-04: engines send the SSE head at once; the head is held, so the client sees only B."""

    async def head_only(exchange: Exchange) -> None:
        await exchange.start_sse("X-From: a")
        exchange.close()

    async with FakeEngine(head_only) as a, FakeEngine(streams(b'{"choices":[]}')) as b:
        table = routing_table({"a": a.url, "b": b.url})
        async with router_in_loop(tmp_path / "t", table) as router:
            for _ in range(2):
                answer = await ask(router.address, post(ASK))
                assert (answer.status, answer.complete) == (200, True)
                assert answer.header("x-headrace-engine") == "b"
                assert answer.header("X-From") is None
            assert len(a.requests) >= 1
            assert len(b.requests) == 2


@pytest.mark.parametrize("when", ["before the head", "before the first byte", "in mid stream", "half closed"])
async def test_a_client_that_leaves_ends_the_engines_work(tmp_path: Path, when: str) -> None:
    """router.md, Streams: client gone -> upstream closed within one loop turn, before the first byte too. End of
    input after the request counts as gone."""
    reached, closed = asyncio.Event(), asyncio.Event()

    async def watched(exchange: Exchange) -> None:
        if when != "before the head":
            await exchange.start_sse()
        if when in ("in mid stream", "half closed"):
            await exchange.chunk(EVENT)
        reached.set()
        await exchange.closed_by_router()
        closed.set()

    async with (
        FakeEngine(watched) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post(ASK))
        await asyncio.wait_for(reached.wait(), 20)
        if when in ("in mid stream", "half closed"):
            await client.until(EVENT)
        assert in_flight(router) == 1
        if when == "half closed":
            client.writer.write_eof()
        else:
            client.writer.transport.abort()
        await asyncio.wait_for(closed.wait(), 20)
        await until(lambda: in_flight(router) == 0)
        await reads(1, router.admin_address, "headrace_requests_total", outcome="client_gone")
        await reads(1, router.admin_address, "headrace_requests_total")


async def test_a_client_that_leaves_while_its_body_comes_reaches_no_engine(tmp_path: Path) -> None:
    async with (
        FakeEngine(streams(b"{}")) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        async with RawClient(router.address) as client:
            await client.send(post(ASK)[:-3])
            await until(lambda: router._listener.busy)
        await until(lambda: not router._listener.connections)
        assert engine.requests == []
        assert in_flight(router) == 0


@pytest.mark.parametrize("half_closed", [False, True], ids=["send limit", "half closed"])
async def test_a_client_that_takes_nothing_closes_both_legs(tmp_path: Path, half_closed: bool) -> None:
    """router.md, Timeouts: no progress to the client for `send` closes both legs, and memory stays bounded. A client
    that half-closes has left, whatever it has not taken yet."""
    timeouts = TableTimeouts(connect=10.0, first_byte=60.0, idle=60.0, send=60.0 if half_closed else 0.5, unary=0.0)
    sent = 0
    closed = asyncio.Event()

    async def flood(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start_sse()
        try:
            for _ in range(2000):
                await exchange.chunk(b"data: " + b"x" * 32_000 + b"\n\n")
                sent += 32_000
        finally:
            closed.set()

    async with FakeEngine(flood) as engine:
        table = routing_table({"a": engine.url}, timeouts=timeouts)
        async with router_in_loop(tmp_path / "t", table) as router:
            loop = asyncio.get_running_loop()
            with socket.socket() as plain:
                plain.setblocking(False)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                host, _, port = router.address.removeprefix("http://").rpartition(":")
                await loop.sock_connect(plain, (host, int(port)))
                await loop.sock_sendall(plain, post(ASK))
                if half_closed:
                    await until(lambda: any(c.writing_paused for c in router._listener.connections))
                    plain.shutdown(socket.SHUT_WR)
                await asyncio.wait_for(closed.wait(), 30)
                await until(lambda: in_flight(router) == 0)
                assert sent < 40_000_000


@pytest.mark.parametrize("kind", ["stream", "unary"])
async def test_a_silent_engine_is_given_up_and_closed_before_the_next_attempt(tmp_path: Path, kind: str) -> None:
    """router.md, Timeouts: first byte of a stream, whole of a unary answer; closed upstream before the next starts."""
    timeouts = TableTimeouts(connect=10.0, first_byte=0.3, idle=20.0, send=20.0, unary=0.3)
    order: list[str] = []

    async def silent(exchange: Exchange) -> None:
        if kind == "stream":
            await exchange.start_sse()
        await exchange.closed_by_router()
        order.append("closed")

    async with FakeEngine(silent) as engine:
        table = routing_table({"a": engine.url}, timeouts=timeouts)
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post({"model": "m", "stream": kind == "stream"}))
            assert answer.status == 504
            assert answer.code == ("first_byte_timeout" if kind == "stream" else "unary_timeout")
            await until(lambda: order == ["closed"])
            assert in_flight(router) == 0
