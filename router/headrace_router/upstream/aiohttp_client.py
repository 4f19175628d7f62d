"""The upstream leg on aiohttp's client, with everything switched off that a relay must not do.

On the request path. No decompression, cookies, redirects, own headers, retries, total timeout or limit of connections;
targets go out exactly as they came. One session an engine id: an address that another engine takes over inherits no
connection (STA-04), and an engine that leaves the table takes its own along without touching others.
"""

from __future__ import annotations

import asyncio
import errno
import io
import socket
from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final, cast

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from headrace_api.urls import is_anybodys
from headrace_router.http1.headers import RawHeaders
from headrace_router.upstream.port import Address, Cut, Lost, NotSent, UpstreamRequest, UpstreamResponse

_READ: Final = 64 * 1024
_MAX_HEAD_FIELD: Final = 64 * 1024
# Shorter than the keep-alive of common engine servers (uvicorn: 5 s), so that a reused connection is rarely a dead one.
_KEEP_ALIVE: Final = 4.0
_DNS_TTL: Final = 10
# Above this aiohttp wants a file-like body, which it writes in pieces.
_PIECEWISE: Final = 2**20
_OWN_SHORTAGE: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}
)
_OWN_HEADERS: Final = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


@dataclass(slots=True)
class _Leg:
    """What the connector learns of one attempt."""

    transport: asyncio.Transport | None = None
    reused: bool = False
    seconds: float | None = None


_LEG: ContextVar[_Leg] = ContextVar("headrace_leg")


class _Protocol(ResponseHandler):
    """Ends a body whose framing is broken at once; aiohttp's own leaves its reader waiting (STR-02)."""

    used = False

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """See ResponseHandler; the body fails with the connection."""
        body = self._payload
        super().set_exception(exc, exc_cause or exc)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(exc)


class _Connector(aiohttp.TCPConnector):
    """Notes for each attempt which connection it got and whether it was used before."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory = cast("partial[ResponseHandler]", partial(_Protocol, loop=asyncio.get_running_loop()))

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        """See TCPConnector."""
        leg = _LEG.get()
        since = monotonic()
        connection = await super().connect(req, traces, timeout)
        leg.transport = connection.transport
        protocol = connection.protocol
        assert isinstance(protocol, _Protocol)
        leg.reused, protocol.used = protocol.used, True
        if not leg.reused:
            leg.seconds = monotonic() - since
        return connection


class _Resolver(aiohttp.ThreadedResolver):
    """A name may be made to say anything: it never leads to what is link-local (see is_anybodys)."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See ThreadedResolver."""
        try:
            found = await super().resolve(host, port, family)
        except UnicodeError as error:
            raise OSError(None, f"{host} is no name that can be looked up") from error
        usable = [each for each in found if not is_anybodys(each["host"])]
        if not usable:
            raise OSError(None, f"{host} has no address that an engine can have")
        return usable


class _Response:
    """An answer in the proxy's terms."""

    __slots__ = ("_leg", "_response", "_session", "_settled", "headers", "length", "reason", "status")

    def __init__(self, response: aiohttp.ClientResponse, leg: _Leg, session: _EngineSession, method: str) -> None:
        self._response = response
        self._leg = leg
        self._session = session
        self._settled = False
        self.status: int = response.status
        self.reason: bytes = (response.reason or "").encode("utf-8", "surrogateescape")
        self.headers: RawHeaders = response.raw_headers
        chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
        empty = method == "HEAD" or response.status in (204, 304)
        self.length: int | None = None if chunked and not empty else response.content_length

    async def read(self) -> bytes:
        """See UpstreamResponse."""
        try:
            data = await self._response.content.readany()
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            self.abort()
            raise Cut(str(error) or type(error).__name__) from error
        if not data:
            self._settle()
        return data

    def abort(self) -> None:
        """See UpstreamResponse."""
        if not self._response.content.is_eof() and self._leg.transport is not None:
            self._leg.transport.abort()
        self._response.close()
        self._settle()

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            self._session.leave()


@dataclass(slots=True)
class _EngineSession:
    """Connections of one engine; closes itself when the engine has left the table and its last answer has ended."""

    session: aiohttp.ClientSession
    closing: set[asyncio.Task[None]]
    busy: int = 0
    retired: bool = False

    def leave(self) -> None:
        self.busy -= 1
        self.close_if_idle()

    def close_if_idle(self) -> None:
        if self.retired and self.busy == 0 and not self.session.closed:
            task = asyncio.ensure_future(self.session.close())
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)


@dataclass(slots=True)
class AiohttpUpstream:
    """See Upstream. To be made inside a running loop."""

    on_connect: Any = None
    on_unreached: Any = None
    trust: Any = None
    _sessions: dict[str, _EngineSession] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _resolver: _Resolver = field(default_factory=_Resolver)

    async def send(self, address: Address, request: UpstreamRequest, *, connect: float) -> UpstreamResponse:
        """See Upstream."""
        leg = _Leg()
        _LEG.set(leg)
        engine = self._session(address.engine)
        engine.busy += 1
        sent = False
        try:
            response = await self._request(engine.session, address, request, connect)
            sent = response.status >= 200
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            message = str(error) or type(error).__name__
            if leg.transport is None:
                if self.on_unreached is not None:
                    self.on_unreached(address.engine)
                raise NotSent(message, own=getattr(error, "errno", None) in _OWN_SHORTAGE) from error
            raise Lost(message, reused=leg.reused) from error
        finally:
            if leg.seconds is not None and self.on_connect is not None:
                self.on_connect(leg.seconds)
            if not sent:
                if leg.transport is not None:
                    leg.transport.abort()
                engine.leave()
        if not sent:
            raise Lost(f"answered {response.status} to a request that offers no other protocol", reused=False)
        return _Response(response, leg, engine, request.method)

    async def _request(
        self, session: aiohttp.ClientSession, address: Address, request: UpstreamRequest, connect: float
    ) -> aiohttp.ClientResponse:
        headers: CIMultiDict[str] = CIMultiDict(
            [(name.decode("ascii"), value.decode("utf-8")) for name, value in request.headers]
        )
        headers["Content-Length"] = str(len(request.body))
        return await session.request(
            request.method,
            URL(address.url.rstrip("/") + request.target, encoded=True),
            data=io.BytesIO(request.body) if len(request.body) > _PIECEWISE else request.body or None,
            headers=headers,
            allow_redirects=False,
            server_hostname=address.server_name,
            ssl=self.trust(address.tls) if self.trust is not None and address.url.startswith("https:") else True,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect or None),
        )

    def renew(self, engine: str) -> None:
        """See Upstream."""
        session = self._sessions.pop(engine, None)
        if session is not None:
            session.retired = True
            session.close_if_idle()

    def retain(self, engines: Collection[str]) -> None:
        """See Upstream."""
        for name in [name for name in self._sessions if name not in engines]:
            self.renew(name)

    async def close(self) -> None:
        """See Upstream."""
        for engine in self._sessions.values():
            await engine.session.close()
        self._sessions.clear()
        while self._closing:
            await asyncio.gather(*self._closing)
        await self._resolver.close()

    def _session(self, engine: str) -> _EngineSession:
        found = self._sessions.get(engine)
        if found is None:
            connector = _Connector(
                limit=0, resolver=self._resolver, ttl_dns_cache=_DNS_TTL, keepalive_timeout=_KEEP_ALIVE
            )
            session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_OWN_HEADERS,
                read_bufsize=_READ,
                max_line_size=_MAX_HEAD_FIELD,
                max_field_size=_MAX_HEAD_FIELD,
            )
            # A closed keep-alive connection must come back as a failure: the retry is the budget's to allow.
            session._retry_connection = False
            found = self._sessions[engine] = _EngineSession(session, self._closing)
        return found
