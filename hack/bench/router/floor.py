"""The least that a proxy in Python on uvloop can do: bytes passed on as they come, to engines in turn. Ours' floor.

No proxy to use: it checks nothing, decides nothing and counts nothing; it only finds where messages end, in the one way
that the benchmark's engines write them. `python -m bench.router.floor PORT HOST:PORT,...`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import cast

import uvloop

from bench.router.processes import LOOPBACK

LAST_CHUNK = b"0\r\n\r\n"


def body_length(head: bytes) -> int:
    """What Content-Length says; -1 if it is not there."""
    at = head.lower().find(b"content-length:")
    return int(head[at + 15 : head.index(b"\r\n", at)]) if at >= 0 else -1


class Engine(asyncio.Protocol):
    """One connection to an engine."""

    def __init__(self, idle: list[Engine]) -> None:
        self.idle = idle
        self.client: Client | None = None
        self.transport: asyncio.Transport | None = None
        self.left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def carry(self, client: Client, data: bytes) -> None:
        """Pass a request on."""
        assert self.transport is not None
        self.client, self.left = client, 0
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        client = self.client
        if client is None or client.transport is None:
            return
        client.transport.write(data)
        if not self.left:
            end = data.find(b"\r\n\r\n") + 4
            length = body_length(data[:end])
            self.left = length + end if length >= 0 else -1
        if self.left > 0:
            self.left -= len(data)
            ended = self.left <= 0
        else:
            ended = data.endswith(LAST_CHUNK)
        if ended:
            self.client = None
            self.idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.transport = None
        if self in self.idle:
            self.idle.remove(self)


class Client(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, engines: itertools.cycle[tuple[str, int, list[Engine]]]) -> None:
        self.engines = engines
        self.transport: asyncio.Transport | None = None
        self.begun = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.begun:
            data = self.begun + data
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or len(data) < end + max(0, body_length(data[:end])):
            self.begun = data
            return
        self.begun = b""
        host, port, idle = next(self.engines)
        if idle:
            idle.pop().carry(self, data)
        else:
            self.task = asyncio.ensure_future(self.connect(host, port, idle, data))

    async def connect(self, host: str, port: int, idle: list[Engine], data: bytes) -> None:
        """A new connection to an engine."""
        _, engine = await asyncio.get_running_loop().create_connection(lambda: Engine(idle), host, port)
        engine.carry(self, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.transport = None


async def serve(port: int, engines: str) -> None:
    """Until killed."""
    ways = [(host, int(at), list[Engine]()) for host, _, at in (one.partition(":") for one in engines.split(","))]
    turn = itertools.cycle(ways)
    server = await asyncio.get_running_loop().create_server(lambda: Client(turn), LOOPBACK, port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
