"""What the proxy needs of a connection to an engine, whoever makes it.

On the request path, by callbacks. The proxy knows this interface alone, so that no rule about connections stands in it.
Failures are told apart by what the engine can have seen, because that decides whether another attempt is free (NotSent)
or a retry that the budget must allow (Lost).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from headrace_router.http1.response_head import ResponseHead
    from headrace_router.upstream.credentials import Reference
    from headrace_router.upstream.endpoint import Endpoint


class NotSent(Exception):
    """No engine can have accepted the attempt: refused, timed out while connecting, no address, TLS not agreed.

    ``own``: the router itself is out of sockets or memory, which says nothing about any engine.
    """

    def __init__(self, message: str, *, own: bool = False) -> None:
        super().__init__(message)
        self.own = own


class Lost(Exception):
    """The connection ended after the request may have been written and before an answer's head.

    ``reused``: it was a kept-alive connection, which an idle engine closes at any time, and not a byte of an answer had
    come; that alone says nothing about its health (RET-01).
    """

    def __init__(self, message: str, *, reused: bool) -> None:
        super().__init__(message)
        self.reused = reused


class Cut(Exception):
    """The answer's body ended before its framing said so, or its framing is broken."""


class Address:
    """Where an attempt goes, a value. Connections are the engine's, not the address's: an address may change hands.

    ``server_name``: what an https engine's certificate must say, if not the URL's host. ``tls``: what its signer is
    known by, None is the system's authorities. ``found``: where the pool found it last; the pool's alone.
    """

    __slots__ = ("_hash", "engine", "found", "server_name", "tls", "url")

    def __init__(self, engine: str, url: str, server_name: str | None = None, tls: Reference | None = None) -> None:
        self.engine = engine
        self.url = url
        self.server_name = server_name
        self.tls = tls
        self.found: Endpoint | None = None
        self._hash = hash((engine, url, server_name, tls))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self.engine, self.url, self.server_name, self.tls) == (
            other.engine,
            other.url,
            other.server_name,
            other.tls,
        )

    def __repr__(self) -> str:
        return f"Address({self.engine!r}, {self.url!r}, {self.server_name!r}, {self.tls!r})"


@mypyc_attr(free_list_len=1)
class Outgoing:
    """What an attempt sends, byte for byte; Host, Content-Length and Connection are the upstream's.

    ``target`` as it came, ``lines`` whole header lines, each with its CRLF, in pieces of any size.
    """

    __slots__ = ("body", "lines", "method", "target")

    def __init__(self, method: str, target: str, lines: list[bytes], body: bytes) -> None:
        self.method = method
        self.target = target
        self.lines = lines
        self.body = body


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink(ABC):
    """Takes one attempt's answer in. Never called inside ``send`` or ``abort``, nor after ``abort``.

    After any number of these exactly one of body_ended and attempt_failed comes, last of all.
    """

    __slots__ = ()

    @abstractmethod
    def head_came(self, head: ResponseHead) -> None:
        """The final head; interim ones (1xx) are swallowed."""

    @abstractmethod
    def body_came(self, raw: bytes, payload: bytes) -> None:
        """Bytes of the body. ``raw``: if the head says chunked, framing that may be passed on as it is, without the
        last chunk; otherwise the payload itself."""

    def chunk_came(self, raw: bytes, at: int) -> None:
        """The same, where a read is one whole chunk, with its payload from ``at`` on and the CRLF behind it."""
        self.body_came(raw, raw[at:-2])

    @abstractmethod
    def body_ended(self) -> None:
        """The body is complete. The connection is already back with the others, or closed."""

    @abstractmethod
    def attempt_failed(self, error: NotSent | Lost | Cut) -> None:
        """NotSent or Lost before a head, Cut behind it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Leg(ABC):
    """One attempt's hold on its connection."""

    __slots__ = ()

    @abstractmethod
    def at_boundary(self) -> bool:
        """Whether the body so far ends where a chunk may be added: between chunks, or it isn't chunked. Also when it
        was cut."""

    @abstractmethod
    def abort(self) -> None:
        """Close the engine's connection now, so that it stops its work; harmless when the attempt has ended."""

    @abstractmethod
    def pause(self) -> None:
        """Read no more; what was read already may still come."""

    @abstractmethod
    def resume(self) -> None:
        """Read on. Calls nothing back itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class UpstreamPool(ABC):
    """Sends requests to engines and keeps their connections."""

    @abstractmethod
    def send(self, address: Address, outgoing: Outgoing, sink: Sink, connect: float) -> Leg:
        """Send, over a kept connection or a new one. ``connect``: seconds for a new one's name, connect and TLS
        together; 0 is no limit."""

    @abstractmethod
    def renew(self, engine: str) -> None:
        """Use none of the engine's idle connections any more: one of them was found closed."""

    @abstractmethod
    def retain(self, engines: Collection[str]) -> None:
        """Forget the connections of all other engines: idle ones now, busy ones when their answers end."""

    @abstractmethod
    async def fetch(self, address: Address, target: str, timeout: float) -> int:  # noqa: ASYNC109
        """The status of a GET, once its body has ended.

        Raises:
            NotSent, Lost, Cut: see there. TimeoutError: after ``timeout`` seconds.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close everything; attempts that still run fail."""
