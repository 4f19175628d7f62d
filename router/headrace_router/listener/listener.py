"""The clients' listener: makes connections, counts them, bounds them in time, and ends them without losing a request.

On the request path for each connection, beside it for each request. One coarse sweep limits all connections in time. In
a drain nothing that has begun is dropped: not a request whose first bytes have come, not one that is in the kernel
still. Must not know what a request asks for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, cast

from headrace_router.listener.aiohttp_side import AiohttpSide
from headrace_router.listener.client_connection import ClientConnection
from headrace_router.listener.idle import Idle
from headrace_router.listener.limits import Limits
from headrace_router.outbox import Outbox
from headrace_router.proxy.clock import Deadlines, Timed
from headrace_router.proxy.refusals import Refusal

if TYPE_CHECKING:
    from headrace_router.proxy.proxy import Proxy

log = logging.getLogger("headrace.router")

# Seconds between two looks at what limits connections: thousands of idle ones must not be looked at more often.
SWEEP: Final = 1.0
# Connections on their way out for want of room that have time for it, told so or closed while idle; more are cut.
TOLD: Final = 256
# Idle connections that are looked for at most, to make room for as many that arrive.
ROOM: Final = 64
_LOOK: Final = 0.01


class Listener:
    """A protocol factory. ``hot`` False: every request takes aiohttp's side (for comparison)."""

    def __init__(
        self, proxy: Proxy, limits: Limits | None = None, *, hot: bool = True, outbox: Outbox | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.outbox = outbox or Outbox(self.loop)
        self.proxy = proxy
        self.limits = limits or Limits()
        self.hot = hot
        self.side = AiohttpSide()
        shortest = min(self.limits.head_seconds, self.limits.first_request, self.limits.body_idle, self.limits.idle)
        self._deadlines = Deadlines(self.loop, min(SWEEP, shortest / 4))
        self._idle = Idle()
        self._crowded = False
        self._leaving: set[ClientConnection] = set()  # open for a moment longer; they don't count

    def __call__(self) -> asyncio.Protocol:
        """A protocol for a new connection: it has the methods, not the class (docs/adr/0021)."""
        return cast(asyncio.Protocol, ClientConnection(self))

    @property
    def connections(self) -> AbstractSet[ClientConnection]:
        """All that are open."""
        return cast(AbstractSet[ClientConnection], self._deadlines.items.keys())

    def admit(self, connection: ClientConnection) -> bool:
        """Take up a new connection, for an idle one if need be; False: all are in use, and it is to be told so."""
        room = self._counted() < self.limits.connections or self._make_room()
        self._deadlines.add(cast(Timed, connection))
        if not room:
            if self._leaves(connection):
                return False
            connection.abort()
        elif self._crowded:
            self._idle.add(connection)
        return True

    def room(self, arriving: int, protocols: Iterable[object]) -> bool:
        """Whether one more would be admitted, behind those that are ``arriving``; of whom ``protocols`` are there
        already, and may have been admitted a moment ago."""
        counted = self._counted()
        most = self.limits.connections
        if counted + arriving < most:
            return True
        connections = self.connections
        coming = arriving - sum([protocol in connections for protocol in protocols])
        wanted = counted + coming + 1 - most
        if wanted <= 0:
            return True
        self._crowd()
        return wanted <= ROOM and len(self._idle.spared(self.loop.time(), wanted)) >= wanted

    def idles(self, connection: ClientConnection, *, anew: bool) -> None:
        """It waits for a request, from now on or (not ``anew``) as before, whatever it has sent."""
        if self._crowded:
            if anew:
                self._idle.add(connection)
            else:
                self._idle.keep(connection)

    def lost(self, connection: ClientConnection) -> None:
        """It is closed."""
        self._deadlines.discard(cast(Timed, connection))
        self._leaving.discard(connection)
        if self._crowded:
            self._idle.discard(connection)
            # Not at once: to find out who idles takes a look at all. It is paid for by as many that come as had left.
            if self._counted() < max(1, self.limits.connections // 2):
                self._crowded = False
                self._idle.clear()

    def _counted(self) -> int:
        return len(self._deadlines.items) - len(self._leaving)

    def _make_room(self) -> bool:
        """Close the connection that has idled longest, or one whose first head is late; False: there is none."""
        self._crowd()
        idle = self._idle.take(self.loop.time())
        if idle is None:
            return False
        if self._leaves(idle):
            idle.give_way()
        else:
            idle.abort()
        return True

    def _crowd(self) -> None:
        """From now on it is known who idles."""
        if not self._crowded:
            self._crowded = True
            self._idle.fill(self.connections)
            log.warning(
                "%d clients' connections are open, and no more may be: new ones take the places of those that idle "
                "or whose first head is late, or are refused",
                self.limits.connections,
            )

    def _leaves(self, connection: ClientConnection) -> bool:
        """It counts no more; whether it has time to end."""
        self._leaving.add(connection)
        return len(self._leaving) <= TOLD

    def drain(self) -> None:
        """Answers whose heads aren't out yet tell their clients that the connection closes."""
        for connection in self.connections:
            connection.say_close()

    def close_idle(self) -> None:
        """Close idle connections; busy ones close after their request, those just made after their first."""
        for connection in list(self.connections):
            if connection.idle:
                connection.close()
            else:
                connection.last()

    @property
    def busy(self) -> bool:
        """Whether a request has begun anywhere that isn't answered yet, be it in the kernel still."""
        return any(connection.busy for connection in self.connections)

    async def ended(self) -> None:
        """Wait until no request has begun anywhere. For the end alone: it looks again and again."""
        while self.busy:  # noqa: ASYNC110 - an event would cost every request something
            await asyncio.sleep(_LOOK)

    def end_all(self, refusal: Refusal) -> None:
        """Requests that are still being read will not be served any more."""
        for connection in list(self.connections):
            connection.end(refusal)

    async def shutdown(self, seconds: float) -> None:
        """Close what is left; after ``seconds`` at once."""
        for connection in list(self.connections):
            connection.close()
        end = self.loop.time() + seconds
        while self.connections and self.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)
        for connection in list(self.connections):
            connection.abort()
        self._deadlines.close()
        await self.side.shutdown(0.0)
