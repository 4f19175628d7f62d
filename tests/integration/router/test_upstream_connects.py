"""New connections to engines: refused, black-holed, by name, without sockets of our own."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace_router.upstream.connect import TTL
from headrace_router.upstream.port import Address, NotSent
from support.router_process import until
from support.upstream_parts import ASKED, Noted
from support.upstream_pool import SocketEngine, answering, pooled, sockets, tried

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@contextmanager
def black_hole() -> Iterator[int]:
    """A port on 127.0.0.1 to which a connect never completes."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        port = hole.getsockname()[1]
        fillers = []
        try:
            for _ in range(8):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
                fillers.append(filler)
            yield port
        finally:
            for filler in fillers:
                filler.close()


@contextmanager
def bound_only() -> Iterator[int]:
    """A port that refuses."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def test_refused_is_not_sent_and_not_our_own_fault() -> None:
    unreached: list[str] = []
    with bound_only() as port:
        async with pooled() as used:
            used.on_unreached = unreached.append
            for _ in range(3):
                error = (await tried(used, Address("ns/a", f"http://127.0.0.1:{port}"))).outcome
                assert isinstance(error, NotSent)
                assert not error.own
                assert "127.0.0.1" in str(error)
            assert unreached == ["ns/a"] * 3
            assert not used._endpoints


async def test_a_black_hole_costs_its_connect_limit_and_nobody_else() -> None:
    """SCA-02 (https://github.com/BerriAI/litellm/issues/12669): many limits, one timer; other engines go on."""
    unreached: list[str] = []
    with black_hole() as port:
        async with SocketEngine(answering(OK), engine="ns/b") as engine, pooled() as used:
            used.on_unreached = unreached.append
            hole = Address("ns/a", f"http://127.0.0.1:{port}")
            sinks = [Noted() for _ in range(100)]
            for sink in sinks[:99]:
                used.send(hole, ASKED, sink, connect=0.3)
            used.send(hole, ASKED, sinks[99], connect=0.0)
            for _ in range(20):
                assert (await tried(used, engine.address)).kind == "ended"
            for sink in sinks[:99]:
                assert await sink.end() == "NotSent"
                assert "within 0.3 s" in str(sink.outcome)
            assert unreached == ["ns/a"] * 99
            await until(lambda: used._sweeper is None)
            assert sinks[99].calls == 0, "0 is no limit"


async def test_a_loop_that_is_held_up_blames_no_engine() -> None:
    """protection.md: nothing is lost needlessly. Each step of a connect takes a turn of the loop, and the turns of a
    router that gets thousands of requests at once are long; the kernel has connected long before."""
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        busy = True

        def holds_up() -> None:
            time.sleep(0.25)
            if busy:
                asyncio.get_running_loop().call_soon(holds_up)

        sinks = [Noted() for _ in range(20)]
        for sink in sinks:
            used.send(engine.address, ASKED, sink, connect=1.0)
        holds_up()
        try:
            assert [await sink.end() for sink in sinks] == ["ended"] * len(sinks)
        finally:
            busy = False


async def test_the_connect_limit_covers_a_name_that_is_not_answered() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hangs(_: str) -> list[str]:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return ["127.0.0.1"]

    async with pooled(hangs) as used:
        sink = await tried(used, Address("ns/a", "http://a.example:80"), connect=0.1)
        assert sink.kind == "NotSent"
        assert "within 0.1 s" in str(sink.outcome)
        release.set()
        await until(lambda: not used.names._asking)


@pytest.mark.parametrize("first", ["refuses", "hangs"])
async def test_another_address_of_the_name_is_tried(first: str) -> None:
    """RFC 8305: one address that is dead costs a quarter of a second, not the request."""
    with bound_only() as closed, black_hole() as hole:
        port = closed if first == "refuses" else hole
        with socket.socket() as good:
            good.bind(("127.0.0.2", port))
            good.listen(64)
            good.setblocking(False)

            async def serve() -> None:
                loop = asyncio.get_running_loop()
                while True:
                    made, _ = await loop.sock_accept(good)
                    with made:
                        await loop.sock_recv(made, 65536)
                        await loop.sock_sendall(made, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

            serving = asyncio.create_task(serve(), name="engine")
            async with pooled(lambda _: ["127.0.0.1", "127.0.0.2"]) as used:
                for _ in range(4):
                    assert (await tried(used, Address("ns/a", f"http://a.example:{port}"))).payload == b"hello"
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_a_names_addresses_share_the_connections() -> None:
    """A headless Service by name: not all of them to the first pod. An answer of the resolver serves many connects."""
    asked = 0

    def look(_: str) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1", "127.0.0.2", "127.0.0.3"]

    with socket.socket() as everywhere:
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen(64)
        port = everywhere.getsockname()[1]
        async with pooled(look) as used:
            legs = [
                used.send(Address("ns/a", f"http://a.example:{port}"), ASKED, Noted(), connect=20.0) for _ in range(30)
            ]
            await until(lambda: len(used.connections) == 30)
            to = [connection._socket.getpeername()[0] for connection in used.connections if connection._socket]
            assert sorted(to.count(f"127.0.0.{n}") for n in (1, 2, 3)) == [10, 10, 10]
            assert asked == 1 < TTL
            for leg in legs:
                leg.abort()


async def test_connect_times_are_told_of_new_connections_alone() -> None:
    """SCA-01 (https://github.com/BerriAI/litellm/pull/19711): time spent waiting for a connection is a metric."""
    told: list[float] = []
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        used.on_connect = told.append
        for _ in range(5):
            await tried(used, engine.address)
        assert len(told) == 1
        assert told[0] >= 0


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_shortage_of_our_own_is_told_apart() -> None:
    """SCA-01: descriptors that run out say nothing of any engine, by address or by name."""
    unreached: list[str] = []
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        used.on_unreached = unreached.append
        await tried(used, engine.address)
        used.renew("ns/a")
        await until(lambda: engine.open == 0)
        with no_more_descriptors():
            for url in (engine.address.url, f"http://localhost:{engine.port}"):
                error = (await tried(used, Address("ns/a", url))).outcome
                assert isinstance(error, NotSent)
                assert error.own
        assert unreached == []
        assert (await tried(used, engine.address)).kind == "ended"


async def test_idle_connections_give_way_when_sockets_run_out() -> None:
    """No request is lost for a socket that is only kept."""
    async with SocketEngine(answering(OK)) as a, SocketEngine(answering(OK), engine="ns/b") as b, pooled() as used:
        sinks = [Noted() for _ in range(4)]
        for sink in sinks:
            used.send(a.address, ASKED, sink, connect=20.0)
        for sink in sinks:
            await sink.end()
        before = sockets()
        # The engine in this process needs one for itself.
        with no_more_descriptors():
            assert (await tried(used, b.address)).kind == "ended"
        assert sockets() < before
