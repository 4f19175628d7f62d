"""What the proxy needs of a connection to an engine, whoever makes it.

On the request path. The proxy knows this interface alone, so that the client underneath can be replaced without a rule
being written twice. Failures are told apart by what the engine can have seen, because that decides whether another
attempt is free (NotSent) or a retry that the budget must allow (Lost).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from headrace_router.http1.headers import RawHeaders


class NotSent(Exception):
    """No engine can have accepted the attempt: refused, timed out while connecting, no address, TLS not agreed.

    ``own``: the router itself is out of sockets or memory, which says nothing about any engine.
    """

    def __init__(self, message: str, *, own: bool = False) -> None:
        super().__init__(message)
        self.own = own


class Lost(Exception):
    """The connection ended after the request may have been written and before an answer's head.

    ``reused``: it was a kept-alive connection, which an idle engine closes at any time; that alone says nothing about
    its health (RET-01).
    """

    def __init__(self, message: str, *, reused: bool) -> None:
        super().__init__(message)
        self.reused = reused


class Cut(Exception):
    """The answer's body ended before its framing said so, or its framing is broken."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an attempt goes. Connections belong to the engine, not to the address: an address may change hands."""

    engine: str
    url: str
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What is sent, byte for byte; Host, Content-Length and Connection are the upstream's."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class UpstreamResponse(Protocol):
    """An answer whose head has come."""

    @property
    def status(self) -> int:
        """Status code, 200 to 599."""

    @property
    def reason(self) -> bytes:
        """Reason phrase."""

    @property
    def headers(self) -> RawHeaders:
        """All header lines, as they came."""

    @property
    def length(self) -> int | None:
        """Bytes of the body when it is framed by Content-Length."""

    async def read(self) -> bytes:
        """The next bytes of the body, never empty before its end, b"" at its end.

        Raises:
            Cut: the body is broken off.
        """

    def abort(self) -> None:
        """Close the connection now, so that the engine stops its work; harmless when the answer is complete."""


class Upstream(Protocol):
    """Sends requests to engines and keeps their connections."""

    async def send(self, address: Address, request: UpstreamRequest, *, connect: float) -> UpstreamResponse:
        """Send and wait for the head. ``connect``: seconds, 0 is no limit. Cancelling closes the connection at once.

        Raises:
            NotSent, Lost: see there.
        """

    def renew(self, engine: str) -> None:
        """Use none of the engine's idle connections any more: one of them was found closed."""

    def retain(self, engines: Collection[str]) -> None:
        """Forget the connections of all other engines: idle ones now, busy ones when their answers end."""

    async def close(self) -> None:
        """Close everything."""
