"""A router with stand-ins at both ends: what it writes goes nowhere, and an engine's connection is there at once.

From a client connection's data_received to the last write, all parts are the router's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from headrace_router.server.server import Router, Settings
from headrace_router.tables.tables_from import TablesFrom
from headrace_router.upstream import endpoint

# Turns of the loop in which a connection that is made at once is made.
PATIENCE = 20


class Unexpected(Exception):
    """The router did something else than it was asked to; the message says what."""


class Transport(asyncio.BaseTransport):
    """Takes what is written, and tells ``asked``."""

    def __init__(self, asked: list[Transport], near: socket.socket) -> None:
        self.protocol: Any = None
        self.written: list[bytes] = []
        self._asked = asked
        self._near = near

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if self._asked[-1:] != [self]:  # a long request leaves in several writes
            self._asked.append(self)

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 50000), "socket": self._near}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def nothing(self, *_: object) -> None:
        return

    pause_reading = resume_reading = close = abort = set_write_buffer_limits = write_eof = nothing


class Client:
    """A connection of a client."""

    def __init__(self, router: Router, near: socket.socket) -> None:
        self.transport = Transport([], near)
        self.connection: Any = router._listener()
        self.connection.connection_made(self.transport)

    def got(self) -> bytes:
        """All that was written to it since the last call."""
        written = b"".join(self.transport.written)
        self.transport.written.clear()
        return written


class Stage:
    """A router's clients and engines. ``asked``: engines' connections that a request was written to, in order."""

    def __init__(self, router: Router) -> None:
        self.asked: list[Transport] = []
        self.outbox = router.outbox
        self._router = router
        self._transports: list[Transport] = []
        self._clients: list[Client] = []
        self._sockets = [*socket.socketpair(), *socket.socketpair()]

    def client(self) -> Client:
        """Another client."""
        made = Client(self._router, self._sockets[0])
        self._clients.append(made)
        return made

    def close(self) -> None:
        """Close what stands for connections."""
        for client in self._clients:
            client.connection.connection_lost(None)
        for one in self._transports:
            one.protocol.connection_lost(None)
        for near in self._sockets:
            near.close()

    async def connect(self, _to: Any, _names: Any, make: Callable[[socket.socket], Any], **_: Any) -> Any:
        """Stands for upstream.connect.connect."""
        connection = make(self._sockets[2])
        transport = Transport(self.asked, self._sockets[2])
        transport.protocol = connection
        self._transports.append(transport)
        connection.connection_made(transport)
        return connection

    def ask(self, client: Client, reads: Sequence[bytes]) -> None:
        """A request comes, in these reads."""
        for data in reads:
            client.connection.data_received(data)
        self.outbox.flush()

    async def connected(self) -> None:
        """Until an engine was asked, where a connection had to be made first."""
        for _ in range(PATIENCE):
            if self.asked:
                break
            await asyncio.sleep(0)

    def answer(self, client: Client, reads: Sequence[bytes]) -> None:
        """The one engine that was asked answers, in these reads.

        Raises:
            Unexpected: none was, or several.
        """
        if len(self.asked) != 1:
            raise Unexpected(f"{len(self.asked)} engines were asked; right would be 1: {client.got()[:300]!r}")
        protocol = self.asked.pop().protocol
        for data in reads:
            protocol.data_received(data)
        self.outbox.flush()


@contextlib.asynccontextmanager
async def staged(table: Path) -> AsyncIterator[Stage]:
    """The stage of a router with this table; engines' connections are made there meanwhile."""
    router = Router(Settings(TablesFrom((table,)), listen=("127.0.0.1", 0), admin=("127.0.0.1", 0)))
    await router.tables.check()
    stage = Stage(router)
    plain, vars(endpoint)["connect"] = vars(endpoint)["connect"], stage.connect
    try:
        yield stage
    finally:
        vars(endpoint)["connect"] = plain
        stage.close()
        await router.upstream.close()
