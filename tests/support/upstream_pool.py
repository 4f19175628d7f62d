"""A pool under test, and engines that are plain sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headrace_router.upstream.pool import Pool, Trust
from headrace_router.upstream.port import Address, Outgoing
from headrace_router.upstream.resolve import LookUp, Resolver, look_up
from support.upstream_parts import ASKED, Noted

NO_LINGER = struct.pack("ii", 1, 0)


@asynccontextmanager
async def pooled(look: LookUp | None = None, trust: Trust | None = None) -> AsyncIterator[Pool]:
    """A pool that is closed at the end, with nothing of it left."""
    pool = Pool(Resolver(look or look_up), trust)
    try:
        yield pool
    finally:
        await pool.close()
        assert not pool.connections
        assert not pool.dials
        assert not [task for task in asyncio.all_tasks() if task.get_name().split()[0] in ("connect", "resolve")]


async def tried(pool: Pool, to: Address, outgoing: Outgoing = ASKED, *, connect: float = 20.0) -> Noted:
    """One request to its outcome."""
    sink = Noted()
    pool.send(to, outgoing, sink, connect=connect)
    assert sink.calls == 0, "no callback inside send"
    await sink.end()
    return sink


def reset(made: socket.socket) -> None:
    """Close so that the other side sees a reset."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    made.close()


Talk = Callable[["Wire"], Awaitable[None]]


class Wire:
    """One accepted connection of an engine, as a socket. ``number``: of this engine's, from 1."""

    def __init__(self, made: socket.socket, number: int) -> None:
        self.socket = made
        self.number = number
        self.received = b""

    async def request(self) -> bytes:
        """One request of at most 64 KiB; b"" when the router has closed."""
        loop = asyncio.get_running_loop()
        while True:
            head, found, body = self.received.partition(b"\r\n\r\n")
            if found:
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                if len(body) >= length:
                    end = len(head) + 4 + length
                    request, self.received = self.received[:end], self.received[end:]
                    return request
            data = await loop.sock_recv(self.socket, 65536)
            if not data:
                return b""
            self.received += data

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def closed(self) -> bytes:
        """Wait until the router closes; returns what came before."""
        loop = asyncio.get_running_loop()
        received = self.received
        with contextlib.suppress(ConnectionError):
            while data := await loop.sock_recv(self.socket, 65536):
                received += data
        return received


class SocketEngine:
    """``async with SocketEngine(talk) as engine``: runs ``talk`` for each connection and then closes it."""

    def __init__(self, talk: Talk, *, engine: str = "ns/a", receive: int = 0) -> None:
        self._talk = talk
        self._engine = engine
        self._receive = receive
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.open = 0

    @property
    def address(self) -> Address:
        return Address(self._engine, f"http://127.0.0.1:{self.port}")

    async def __aenter__(self) -> SocketEngine:
        self._listener = socket.socket()
        if self._receive:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._accepting.cancel()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(self._accepting, *self._tasks, return_exceptions=True)
        self._listener.close()
        wrong = [each for each in results if isinstance(each, Exception) and not isinstance(each, ConnectionError)]
        if wrong:
            raise ExceptionGroup("the engine's talk failed", wrong)

    async def _accept(self) -> None:
        while True:
            made, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            self.connections += 1
            self._tasks.add(asyncio.create_task(self._serve(Wire(made, self.connections))))

    async def _serve(self, wire: Wire) -> None:
        self.open += 1
        try:
            await self._talk(wire)
        finally:
            self.open -= 1
            wire.socket.close()


def answering(data: bytes) -> Talk:
    """Answers every request so and keeps the connection."""

    async def talk(wire: Wire) -> None:
        while await wire.request():
            await wire.send(data)

    return talk


def sockets() -> int:
    """Open sockets of this process."""
    count = 0
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")  # noqa: PTH115
    return count
