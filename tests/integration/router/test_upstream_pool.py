"""The pool against engines that are plain sockets: kept connections, which are used again and when not."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
from collections.abc import Callable

import pytest

from headrace_router.upstream import endpoint, pool
from headrace_router.upstream.pool import Pool
from headrace_router.upstream.port import Address, Lost, Outgoing
from support.router_process import until
from support.upstream_parts import ASKED, Noted, outgoing_of
from support.upstream_pool import SocketEngine, Wire, answering, pooled, reset, sockets, tried

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"


async def test_connections_are_used_again_by_one_request_at_a_time() -> None:
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        for _ in range(50):
            assert (await tried(used, engine.address)).payload == b"hello"
        assert engine.connections == 1
        sinks = [Noted() for _ in range(20)]
        for sink in sinks:
            used.send(engine.address, ASKED, sink, connect=20.0)
        assert [await sink.end() for sink in sinks] == ["ended"] * 20
        assert engine.connections == 20
        for _ in range(50):
            await tried(used, engine.address)
        assert engine.connections == 20


async def test_a_request_begun_in_the_last_callback_gets_the_connection() -> None:
    class Again(Noted):
        left = 1000

        def body_ended(self) -> None:
            if self.left:
                self.left -= 1
                self.head = None
                used.send(engine.address, ASKED, self, connect=20.0)
            else:
                super().body_ended()

    async with SocketEngine(answering(CHUNKED)) as engine, pooled() as used:
        sink = Again()
        used.send(engine.address, ASKED, sink, connect=20.0)
        assert await sink.end() == "ended"
        assert sink.payload == b"hello!" * 1001
        assert engine.connections == 1


async def test_a_connection_that_ends_before_the_turn_does_is_not_used() -> None:
    """Requests leave at the end of a turn; whether their connection still stands is looked at then, not before."""
    wires: list[Wire] = []

    async def talk(wire: Wire) -> None:
        wires.append(wire)
        while await wire.request():
            await wire.send(OK)

    async with SocketEngine(talk) as engine, pooled() as used:
        assert (await tried(used, engine.address)).payload == b"hello"
        sink = Noted()
        used.send(engine.address, ASKED, sink, connect=20.0)
        wires[0].socket.shutdown(socket.SHUT_RDWR)
        (connection,) = used.connections
        assert connection._unread is not None
        assert connection._unread.poll(2000)
        assert await sink.end() == "ended"
        assert engine.connections == 2


async def test_what_is_given_up_before_it_leaves_is_never_sent() -> None:
    requests = 0

    async def talk(wire: Wire) -> None:
        nonlocal requests
        while await wire.request():
            requests += 1
            await wire.send(OK)

    async with SocketEngine(talk) as engine, pooled() as used:
        await tried(used, engine.address)
        sink = Noted()
        used.send(engine.address, ASKED, sink, connect=20.0).abort()
        await tried(used, engine.address)
        assert (requests, engine.connections, sink.calls) == (2, 1, 0)


@pytest.mark.parametrize(
    "left", [b"", b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"], ids=["end", "bytes"]
)
@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not heard yet"])
async def test_a_connection_that_the_engine_has_left_is_not_used_again(left: bytes, heard: bool) -> None:
    """RET-01 (https://github.com/aio-libs/aiohttp/issues/6138): no POST is written to a connection that is closed, also
    where the loop hasn't been told yet; four requests, four answers, no retry."""
    leave: Callable[[], None] | None = None

    async def once(wire: Wire) -> None:
        nonlocal leave
        left_it = asyncio.Event()
        await wire.request()
        await wire.send(OK)

        def go() -> None:
            if left:
                wire.socket.send(left)
            wire.socket.shutdown(socket.SHUT_RDWR)
            left_it.set()

        leave = go
        await left_it.wait()

    async with SocketEngine(once) as engine, pooled() as used:
        for number in range(1, 5):
            assert await (sink := await tried(used, engine.address)).end() == "ended"
            assert sink.payload == b"hello"
            assert engine.connections == number
            (kept,) = used.connections
            assert leave is not None
            assert kept._socket is not None
            number_of = kept._socket.fileno()
            leave()
            if heard:
                await until(lambda: not used.connections)
            else:
                assert select.select([number_of], [], [], 20)[0], "the kernel has it; the loop has had no turn"


async def test_a_kept_connection_that_closes_under_the_request_is_told_apart() -> None:
    """RET-01, choice (i): the retry is the budget's; the close alone says nothing of the engine's health."""

    async def second_kills(wire: Wire) -> None:
        await wire.request()
        await wire.send(OK)
        await wire.request()

    async with SocketEngine(second_kills) as engine, pooled() as used:
        for number in range(1, 4):
            assert (await tried(used, engine.address)).kind == "ended"
            lost = (await tried(used, engine.address)).outcome
            assert isinstance(lost, Lost)
            assert lost.reused
            assert engine.connections == number


async def test_idle_connections_age_and_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter than engines' own limit, also where a steady trickle uses the newest one only."""
    monkeypatch.setattr(endpoint, "KEEP_ALIVE", 0.3)
    monkeypatch.setattr(pool, "_EXPIRE_EVERY", 0.02)
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        sinks = [Noted() for _ in range(10)]
        for sink in sinks:
            used.send(engine.address, ASKED, sink, connect=20.0)
        for sink in sinks:
            await sink.end()
        assert engine.open == 10
        while engine.open > 1:
            await tried(used, engine.address)
            await asyncio.sleep(0.01)
        assert engine.connections <= 12
        await until(lambda: engine.open == 0)
        assert not used._endpoints
        assert not used._of_engine
        assert used._expiry is None or not used._ageing


@pytest.mark.stand_ins
async def test_too_old_is_not_used_even_before_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        await tried(used, engine.address)
        monkeypatch.setattr(endpoint, "KEEP_ALIVE", 0.0)
        await tried(used, engine.address)
        assert engine.connections == 2


@pytest.mark.stand_ins
async def test_idle_connections_of_an_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_IDLE", 3)
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        sinks = [Noted() for _ in range(10)]
        for sink in sinks:
            used.send(engine.address, ASKED, sink, connect=20.0)
        for sink in sinks:
            assert await sink.end() == "ended"
        await until(lambda: engine.open == 3)


async def test_engines_that_leave_the_table_take_their_connections_along() -> None:
    """REL-04: idle ones at once, busy ones when their answers end; others are left alone."""
    release = asyncio.Event()

    async def held(wire: Wire) -> None:
        while b"/slow" in (request := await wire.request()) or request:
            if b"/slow" in request:
                await release.wait()
            await wire.send(OK)

    async with SocketEngine(held) as a, SocketEngine(held, engine="ns/b") as b, pooled() as used:
        slow = Noted()
        used.send(b.address, outgoing_of(target="/slow"), slow, connect=20.0)
        await tried(used, b.address)
        await tried(used, a.address)
        await until(lambda: (a.open, b.open) == (1, 2))
        used.retain({"ns/a"})
        await until(lambda: b.open == 1)
        await tried(used, b.address)
        assert b.connections == 3, "it came back in the next table, before the old answer ended"
        release.set()
        assert await slow.end() == "ended"
        await until(lambda: b.open == 1)
        await tried(used, a.address)
        await tried(used, b.address)
        assert (a.connections, b.connections) == (1, 3)


async def test_an_address_of_another_engine_inherits_no_connection() -> None:
    """STA-04 (https://github.com/kubernetes/kubernetes/issues/109414); nor does another certificate's name."""
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        url = engine.address.url
        addresses = [Address("ns/a", url), Address("ns/b", url), Address("ns/a", url, "other.example")]
        for address in addresses * 2:
            await tried(used, address)
        assert engine.connections == 3


async def test_renewing_closes_what_is_idle_and_keeps_what_answers() -> None:
    async with SocketEngine(answering(OK)) as a, SocketEngine(answering(OK), engine="ns/b") as b, pooled() as used:
        for engine in (a, b):
            await tried(used, engine.address)
        used.renew("ns/a")
        used.renew("ns/unknown")
        await until(lambda: (a.open, b.open) == (0, 1))
        for engine in (a, b):
            await tried(used, engine.address)
        assert (a.connections, b.connections) == (2, 1)


async def test_closing_the_pool_fails_what_runs_and_whatever_comes() -> None:
    async def silent(wire: Wire) -> None:
        await wire.closed()

    async with SocketEngine(silent) as engine, pooled() as used:
        sinks = [Noted() for _ in range(5)]
        for sink in sinks[:3]:
            used.send(engine.address, ASKED, sink, connect=20.0)
        await until(lambda: engine.open == 3)
        for sink in sinks[3:]:
            used.send(engine.address, ASKED, sink, connect=20.0)
        await used.close()
        assert [sink.kind for sink in sinks] == ["Lost"] * 3 + ["NotSent"] * 2


async def test_health_is_fetched_with_a_bound_on_what_it_says() -> None:
    async def talk(wire: Wire) -> None:
        while request := await wire.request():
            if b"GET /slow" in request:
                await wire.closed()
            elif b"GET /endless" in request:
                await wire.send(b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    await wire.send(b"400\r\n" + bytes(1024) + b"\r\n")
            else:
                assert request.startswith(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:")
                await wire.send(OK)

    async with SocketEngine(talk) as engine, pooled() as used:
        assert [await used.fetch(engine.address, "/health", 20.0) for _ in range(3)] == [200] * 3
        assert engine.connections == 1
        assert await used.fetch(engine.address, "/endless", 20.0) == 503
        with pytest.raises(TimeoutError):
            await used.fetch(engine.address, "/slow", 0.05)
        await until(lambda: not used.connections)


async def test_whatever_happens_no_descriptor_or_task_is_left() -> None:
    """Chaos on loopback: two hundred requests that end in every way, half of them abandoned somewhere."""
    answers = [OK, CHUNKED, OK[:-2], CHUNKED[:-9], b"", b"junk\r\n\r\n", OK + b"more", OK.replace(b"200 OK", b"500 No")]

    async def chaos(wire: Wire) -> None:
        answer = answers[wire.number % len(answers)]
        while await wire.request():
            await wire.send(answer)
            if answer not in (OK, CHUNKED):
                if wire.number % 3 == 0:
                    reset(wire.socket)
                return

    gc.collect()
    async with SocketEngine(chaos) as engine:
        before = sockets()
        async with pooled() as used:
            for turn in range(20):
                sinks = [Noted() for _ in range(10)]
                legs = [used.send(engine.address, ASKED, sink, connect=20.0) for sink in sinks]
                for _ in range(turn):
                    await asyncio.sleep(0)
                for leg in legs[::2]:
                    leg.abort()
                for sink in sinks[1::2]:
                    await sink.end()
            assert isinstance(used, Pool)
        await until(lambda: engine.open == 0)
        assert sockets() == before


async def test_methods_other_than_post_are_asked_as_they_are() -> None:
    async def bodiless(wire: Wire) -> None:
        while request := await wire.request():
            assert request.startswith(b"HEAD /v1/models HTTP/1.1\r\n")
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")

    async with SocketEngine(bodiless) as engine, pooled() as used:
        for _ in range(3):
            sink = await tried(used, engine.address, Outgoing("HEAD", "/v1/models", [], b""))
            assert (sink.outcome, sink.payload) == ("ended", b"")
        assert engine.connections == 1
