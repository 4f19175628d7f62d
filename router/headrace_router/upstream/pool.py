"""Connections to engines, kept between requests.

On the request path. An engine's connections are its own: an address that another engine takes over inherits none
(STA-04), and an engine that leaves the table takes its own along. The newest idle one is used first, so that the others
age and close. No limit of connections that run, or some requests would wait unseen (SCA-01). Must not pick or retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Collection
from functools import cache
from typing import Final

from headrace_router.http1.response_head import ResponseHead
from headrace_router.outbox import Outbox
from headrace_router.upstream.attempt import Attempt
from headrace_router.upstream.connect import Names
from headrace_router.upstream.connection import Connection
from headrace_router.upstream.credentials import Reference
from headrace_router.upstream.endpoint import Dial, Endpoint, Sending
from headrace_router.upstream.port import Address, Cut, Lost, NotSent, Outgoing, Sink, UpstreamPool
from headrace_router.upstream.resolve import Resolver
from headrace_router.upstream.trust import system_trust

_EXPIRE_EVERY: Final = 0.5
_ENDPOINTS_AT_ONCE: Final = 512
# Connect limits are looked after together.
_SWEEP: Final = 0.05
# Of a health page's body.
_MAX_FETCHED: Final = 64 * 1024
_LAST_WORDS: Final = 1.0

Trust = Callable[[Reference | None], ssl.SSLContext]


class Pool(UpstreamPool):
    """See UpstreamPool. To be made inside a running loop.

    outbox: gathers requests until the loop's turn ends; it may be the clients' as well.
    trust: what an address's ``tls`` stands for; without it the system's authorities.
    on_connect: told the seconds that each new connection took. on_unreached: told an engine that couldn't be reached.
    """

    def __init__(self, resolver: Resolver, trust: Trust | None = None, outbox: Outbox | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self._outbox = outbox or Outbox(self.loop)
        self.on_connect: Callable[[float], None] | None = None
        self.on_unreached: Callable[[str], None] | None = None
        self.trust = trust or cache(lambda _: system_trust())
        self.names = Names(resolver, self.loop.time)
        self.dials: set[Dial] = set()
        self.connections: set[Connection] = set()
        self._endpoints: dict[Address, Endpoint] = {}
        self._of_engine: dict[str, set[Endpoint]] = {}
        self._ageing: deque[Endpoint] = deque()
        self._expiry: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False
        self._gone = asyncio.Event()

    def send(self, address: Address, outgoing: Outgoing, sink: Sink, connect: float) -> Attempt:
        """See UpstreamPool."""
        attempt = Attempt(sink)
        if self._endpoint(address).idle:
            # Whether a connection can be used is looked at right before it is written to, not now.
            self._outbox.add(Sending(self, address, attempt, outgoing, connect).leave)
        else:
            self.send_now(address, attempt, outgoing, connect)
        return attempt

    def send_now(self, address: Address, attempt: Attempt, outgoing: Outgoing, connect: float) -> None:
        """Over a kept connection or a new one; not for the proxy."""
        endpoint = self._endpoint(address)
        if endpoint.idle and (connection := endpoint.take(self.loop.time())) is not None:
            connection.carry(attempt, outgoing)
            return
        self.dials.add(Dial(self, endpoint, attempt, outgoing, connect))
        if connect > 0 and self._sweeper is None:
            self._sweep_later()

    def renew(self, engine: str) -> None:
        """See UpstreamPool."""
        for endpoint in self._of_engine.get(engine, ()):
            endpoint.close_idle()

    def retire(self, engine: str) -> None:
        """Keep none of the engine's connections: idle ones close now, busy ones when their answers end. For when other
        certificates are to be believed."""
        for endpoint in self._of_engine.pop(engine, ()):
            del self._endpoints[endpoint.address]
            endpoint.forgotten()
            endpoint.retired = True
            endpoint.close_idle()

    def retain(self, engines: Collection[str]) -> None:
        """See UpstreamPool."""
        for engine in [engine for engine in self._of_engine if engine not in engines]:
            self.retire(engine)

    async def fetch(self, address: Address, target: str, timeout: float) -> int:  # noqa: ASYNC109
        """See UpstreamPool."""
        fetched = _Fetched(self.loop.create_future())
        fetched.attempt = self.send(address, Outgoing("GET", target, [], b""), fetched, 0.0)
        try:
            async with asyncio.timeout(timeout):
                return await fetched.status
        finally:
            fetched.attempt.abort()
            # It knows what is raised, which knows this frame.
            del fetched

    async def close(self) -> None:
        """See UpstreamPool."""
        self._outbox.flush()
        self._closed = True
        self.retain(())
        for dial in list(self.dials):
            dial.fail(NotSent("the router is closing", own=True))
        for connection in list(self.connections):
            connection.fail()
        for timer in (self._expiry, self._sweeper):
            if timer is not None:
                timer.cancel()
        await self.names.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                while self.connections or self.dials:
                    self._gone.clear()
                    await self._gone.wait()

    def close_idle(self) -> bool:
        """Close all idle connections; whether there were any."""
        endpoints = [endpoint for endpoint in self._endpoints.values() if endpoint.idle]
        for endpoint in endpoints:
            endpoint.close_idle()
        return bool(endpoints)

    def gone(self, one: Connection | Dial) -> None:
        """A connection has ended, or the making of one."""
        self.connections.discard(one) if isinstance(one, Connection) else self.dials.discard(one)
        self._gone.set()

    def age(self, endpoint: Endpoint) -> None:
        """An endpoint has an idle connection: look after its age."""
        self._ageing.append(endpoint)
        if self._expiry is None and not self._closed:
            self._expiry = self.loop.call_later(_EXPIRE_EVERY, self._expire)

    def forget(self, endpoint: Endpoint) -> None:
        """Nothing of an endpoint is left."""
        if self._endpoints.get(endpoint.address) is endpoint:
            del self._endpoints[endpoint.address]
            endpoint.forgotten()
            others = self._of_engine[endpoint.address.engine]
            others.discard(endpoint)
            if not others:
                del self._of_engine[endpoint.address.engine]

    def _endpoint(self, address: Address) -> Endpoint:
        endpoint = address.found
        if endpoint is None or not endpoint.known or endpoint.pool is not self:
            endpoint = address.found = self._endpoints.get(address) or self._add(address)
        return endpoint

    def _add(self, address: Address) -> Endpoint:
        endpoint = Endpoint(self, address)
        if self._closed:
            endpoint.retired = True
        else:
            self._endpoints[address] = endpoint
            endpoint.known = True
            self._of_engine.setdefault(address.engine, set()).add(endpoint)
        return endpoint

    def _expire(self) -> None:
        """Some endpoints at a time: with thousands of them the loop must not stop for all."""
        self._expiry = None
        now = self.loop.time()
        for _ in range(min(len(self._ageing), _ENDPOINTS_AT_ONCE)):
            endpoint = self._ageing.popleft()
            endpoint.expire(now)
            if endpoint.idle:
                self._ageing.append(endpoint)
            else:
                endpoint.ageing = False
        if self._ageing:
            self._expiry = self.loop.call_later(_EXPIRE_EVERY, self._expire)

    def _sweep_later(self) -> None:
        self._due = self.loop.time() + _SWEEP
        self._sweeper = self.loop.call_later(_SWEEP, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = self.loop.time()
        # For so long the loop took no notice of anybody, and the kernel may have connected long ago.
        deaf = now - self._due
        for dial in list(self.dials):
            if dial.deadline:
                dial.deadline += deaf
                if dial.deadline <= now:
                    dial.fail(NotSent(f"could not connect within {dial.limit:g} s"))
        if any(dial.deadline for dial in self.dials):
            self._sweep_later()


class _Fetched(Sink):
    """Sink of a GET of which only the status counts."""

    __slots__ = ("_seen", "_size", "attempt", "status")

    def __init__(self, status: asyncio.Future[int]) -> None:
        self.status = status
        self.attempt: Attempt | None = None
        self._seen = 0
        self._size = 0

    def head_came(self, head: ResponseHead) -> None:
        """See Sink."""
        self._seen = head.status

    def body_came(self, raw: bytes, payload: bytes) -> None:  # noqa: ARG002
        """See Sink. A body without end says no more than its beginning."""
        self._size += len(payload)
        if self._size > _MAX_FETCHED and self.attempt is not None:
            self.attempt.abort()
            self.body_ended()

    def body_ended(self) -> None:
        """See Sink."""
        if not self.status.done():
            self.status.set_result(self._seen)

    def attempt_failed(self, error: NotSent | Lost | Cut) -> None:
        """See Sink."""
        if not self.status.done():
            self.status.set_exception(error)
