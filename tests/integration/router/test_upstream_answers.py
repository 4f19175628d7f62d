"""Engines that are plain sockets and answer in part, early, slowly or without end; large bodies, aborts, pauses."""

from __future__ import annotations

import asyncio
import socket

import pytest

from headrace_router.upstream.port import Cut, Lost
from support.router_process import until
from support.upstream_parts import ASKED, Noted, outgoing_of
from support.upstream_pool import SocketEngine, Wire, answering, pooled, reset, tried

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"
BIG = 50 * 2**20


@pytest.mark.parametrize("how", ["reset", "close", "half close"])
@pytest.mark.parametrize("answer", [OK, CHUNKED], ids=["length", "chunked"])
async def test_an_end_at_every_byte_of_an_answer(answer: bytes, how: str) -> None:
    """STR-01 (https://github.com/true-async/server/issues/171), chaos by the byte: Lost without a head, Cut behind it,
    ended only when whole; nothing hangs, nothing is left."""
    head = answer.index(b"\r\n\r\n") + 4
    seen: list[int] = []

    async def cut(wire: Wire) -> None:
        await wire.request()
        at = len(seen)
        seen.append(at)
        await wire.send(answer[:at])
        if how == "reset":
            reset(wire.socket)
        elif how == "half close":
            wire.socket.shutdown(socket.SHUT_WR)
            await wire.closed()

    async with SocketEngine(cut) as engine, pooled() as used:
        for at in range(len(answer) + 1):
            sink = await tried(used, engine.address)
            if at == len(answer):
                # A reset may overtake the last bytes: then the answer is cut, never wrong.
                assert sink.kind == "ended" or how == "reset"
            elif at < head or how == "reset":
                assert isinstance(sink.outcome, Lost if sink.head is None else Cut)
                assert how == "reset" or sink.head is None
            else:
                assert isinstance(sink.outcome, Cut)
            if isinstance(sink.outcome, Lost):
                assert not sink.outcome.reused
            assert b"hello!".startswith(sink.payload)
        await until(lambda: not used.connections)


async def test_bytes_one_by_one_are_an_answer() -> None:
    """A slow head has no limit here: the request's own limits end it."""

    async def slow(wire: Wire) -> None:
        while await wire.request():
            for at in range(len(CHUNKED)):
                await wire.send(CHUNKED[at : at + 1])
                await asyncio.sleep(0)

    async with SocketEngine(slow) as engine, pooled() as used:
        for _ in range(3):
            assert (await tried(used, engine.address)).payload == b"hello!"
        assert engine.connections == 1


@pytest.mark.parametrize(
    "flood", [b"X: y\r\n", b"y", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["lines", "line", "interim"]
)
async def test_a_head_without_end_is_given_up_and_the_connection_closed(flood: bytes) -> None:
    ended = asyncio.Event()

    async def endless(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n" if flood != b"HTTP/1.1 100 Continue\r\n\r\n" else flood)
        try:
            while True:
                await wire.send(flood * 1000)
        except ConnectionError:
            ended.set()

    async with SocketEngine(endless) as engine, pooled() as used:
        sink = await tried(used, engine.address)
        assert isinstance(sink.outcome, Lost)
        await asyncio.wait_for(ended.wait(), 20)


async def test_a_large_body_arrives_whole_at_an_engine_that_reads_slowly() -> None:
    """SCA-02 (https://github.com/sgl-project/sglang/issues/30770): 50 MiB by the write buffer's leave; meanwhile other
    requests go on, and the connection is kept."""
    body = bytes(range(256)) * (BIG // 256)
    size = 0

    async def slow(wire: Wire) -> None:
        nonlocal size
        loop = asyncio.get_running_loop()
        head = b""
        while b"\r\n\r\n" not in head:
            head += await loop.sock_recv(wire.socket, 1)
        while size < BIG:
            data = await loop.sock_recv(wire.socket, 2**20)
            assert data == body[size : size + len(data)]
            size += len(data)
        await wire.send(OK)
        await wire.request()

    async with SocketEngine(slow) as engine, SocketEngine(answering(OK), engine="ns/b") as other, pooled() as used:
        sink = Noted()
        used.send(engine.address, outgoing_of(body=body), sink, connect=20.0)
        await until(lambda: size)
        (connection,) = used.connections
        assert connection._transport is not None
        largest = 0
        while not sink.over.is_set():
            largest = max(largest, connection._transport.get_write_buffer_size())
            assert (await tried(used, other.address)).kind == "ended"
        assert (sink.outcome, size) == ("ended", BIG)
        assert largest < 2**20, "the transport never held more than a piece"
        assert connection._rest is None
        await until(lambda: connection in used._endpoints[engine.address].idle)


@pytest.mark.parametrize("how", ["stays", "closes", "resets"])
async def test_an_early_answer_to_a_large_body_is_delivered(how: str) -> None:
    """An engine that refuses 50 MiB (413) before it has read them is heard, though writing to it fails."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"

    async def early(wire: Wire) -> None:
        await asyncio.get_running_loop().sock_recv(wire.socket, 1000)
        await wire.send(refusal)
        if how == "stays":
            await asyncio.sleep(3600)
        elif how == "closes":
            wire.socket.shutdown(socket.SHUT_RDWR)

    async with SocketEngine(early) as engine, pooled() as used:
        for number in range(1, 11):
            sink = await tried(used, engine.address, outgoing_of(body=bytes(BIG // 10)))
            assert (sink.outcome, sink.payload) == ("ended", b"big")
            assert sink.head is not None
            assert sink.head.status == 413
            assert engine.connections == number
            await until(lambda: not used.connections)


async def test_an_engine_that_leaves_in_mid_body_is_lost() -> None:
    async def leaves(wire: Wire) -> None:
        await asyncio.get_running_loop().sock_recv(wire.socket, 100_000)

    async with SocketEngine(leaves) as engine, pooled() as used:
        lost = (await tried(used, engine.address, outgoing_of(body=bytes(BIG)))).outcome
        assert isinstance(lost, Lost)
        assert not lost.reused


@pytest.mark.parametrize("when", ["connecting", "asked", "in mid body", "writing"])
async def test_an_abort_closes_the_engines_connection_and_says_nothing(when: str) -> None:
    """router.md, Streams: client gone -> upstream closed within one loop turn."""
    asked = asyncio.Event()
    gone = asyncio.Event()

    async def waits(wire: Wire) -> None:
        if when != "writing":
            await wire.request()
        if when == "in mid body":
            await wire.send(CHUNKED[:-8])
        asked.set()
        await wire.closed()
        gone.set()

    async with SocketEngine(waits) as engine, pooled() as used:
        sink = Noted()
        outgoing = outgoing_of(body=bytes(BIG)) if when == "writing" else ASKED
        leg = used.send(engine.address, outgoing, sink, connect=20.0)
        if when == "connecting":
            leg.abort()
        else:
            await asked.wait()
            if when == "in mid body":
                await until(lambda: sink.payload)
            calls = sink.calls
            leg.abort()
            await asyncio.wait_for(gone.wait(), 20)
            assert sink.calls == calls
        await until(lambda: not used.connections and not used.dials)
        assert sink.outcome is None
        assert not used._endpoints


async def test_a_paused_answer_waits_in_the_engine() -> None:
    """router.md, Streams: no buffering; what the client doesn't take holds the engine up."""
    sent = 0
    total = 64 * 2**20

    async def floods(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            await wire.send(bytes(2**20))
            sent += 2**20
        await wire.request()

    class Slow(Noted):
        size = 0

        def body_came(self, raw: bytes, payload: bytes) -> None:
            self.size += len(payload)
            leg.pause()

    async with SocketEngine(floods) as engine, pooled() as used:
        sink = Slow()
        leg = used.send(engine.address, ASKED, sink, connect=20.0)
        await until(lambda: sink.size)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sink.size <= 2**18
        assert sent < total / 2
        while not sink.over.is_set():
            leg.resume()
            await asyncio.sleep(0)
        assert (sink.outcome, sink.size) == ("ended", total)
