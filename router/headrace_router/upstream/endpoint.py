"""One engine at one address: its idle connections, and new ones while they are being made.

On the request path. Must not know other endpoints but through the pool.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, cast

from mypy_extensions import mypyc_attr

from headrace_router.upstream.attempt import Attempt, Held
from headrace_router.upstream.connect import connect, origin
from headrace_router.upstream.connection import Connection, Keeper
from headrace_router.upstream.port import Address, NotSent, Outgoing

if TYPE_CHECKING:
    from headrace_router.upstream.pool import Pool

# Seconds. Shorter than the keep-alive of common engine servers (uvicorn: 5), so that a reused connection is rarely a
# dead one.
KEEP_ALIVE: Final = 4.0
# More are closed after their answers.
MAX_IDLE: Final = 512


class Endpoint(Keeper):
    """See the module. ``open``: connections, those that are being made included. ``ageing``: the pool looks after the
    age of ``idle``. ``retired``: nothing is kept any more. ``known``: the pool would find it by its address."""

    __slots__ = ("_now", "address", "ageing", "idle", "known", "open", "origin", "pool", "retired")

    def __init__(self, pool: Pool, address: Address) -> None:
        self.pool = pool
        self.address = address
        self.origin = origin(address.url)
        super().__init__(self.origin.host_line)
        self.known = False
        self.idle: list[Connection] = []
        self.open = 0
        self.ageing = False
        self.retired = False
        self._now = pool.loop.time

    def forgotten(self) -> None:
        """The pool finds it by its address no more."""
        self.known = False
        if self.address.found is self:
            self.address.found = None

    def take(self, now: float) -> Connection | None:
        """The newest idle connection that can be used."""
        idle = self.idle
        while idle:
            connection = idle.pop()
            if now - connection.since < KEEP_ALIVE and connection.usable():
                return connection
            connection.close()
        return None

    def opened(self, connection: Connection) -> None:
        """One more; not when it is made: who gives up just then leaves one that is never told that it is lost."""
        if connection.there:
            self.open += 1
            self.pool.connections.add(connection)

    def keep(self, connection: Connection) -> None:
        """See connection.Keeper."""
        if self.retired or len(self.idle) >= MAX_IDLE:
            connection.close()
            return
        connection.used = True
        connection.since = self._now()
        self.idle.append(connection)
        if not self.ageing:
            self.ageing = True
            self.pool.age(self)

    def lost(self, connection: Connection) -> None:
        """See connection.Keeper."""
        if connection not in self.pool.connections:
            return
        self.pool.gone(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        self.left()

    def left(self) -> None:
        """One less is open."""
        self.open -= 1
        if not self.open:
            self.pool.forget(self)

    def expire(self, now: float) -> None:
        """Close what has been idle for too long; the oldest come first."""
        old = 0
        for connection in self.idle:
            if now - connection.since < KEEP_ALIVE:
                break
            connection.close()
            old += 1
        del self.idle[:old]

    def close_idle(self) -> None:
        """Close what carries nothing."""
        for connection in self.idle:
            connection.close()
        self.idle.clear()


@mypyc_attr(free_list_len=1)
class Sending(Held):
    """An attempt that leaves with others at the end of a turn. ``connect``: see UpstreamPool.send."""

    __slots__ = ("_address", "_attempt", "_connect", "_outgoing", "_pool")

    def __init__(self, pool: Pool, address: Address, attempt: Attempt, outgoing: Outgoing, connect: float) -> None:
        self._pool = pool
        self._attempt = attempt
        self._address = address
        self._outgoing = outgoing
        self._connect = connect
        attempt.held = self

    def leave(self) -> None:
        """Now, unless it was given up meanwhile."""
        attempt = self._attempt
        if attempt.held is self:
            try:
                self._pool.send_now(self._address, attempt, self._outgoing, self._connect)
            except Exception as error:
                attempt.fail(NotSent(str(error) or type(error).__name__, own=True))
                raise

    def give_up(self) -> None:
        """See connection.Held: its attempt holds on to it no more."""


class Dial(Held):
    """A connection that is being made for an attempt. ``limit``: seconds; ``deadline``: by the loop's clock, 0 none."""

    __slots__ = ("_attempt", "_began", "_endpoint", "_outgoing", "_pool", "_task", "_trusted", "deadline", "limit")

    def __init__(self, pool: Pool, endpoint: Endpoint, attempt: Attempt, outgoing: Outgoing, limit: float) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._attempt = attempt
        self._outgoing = outgoing
        self._trusted = False
        self._began = pool.loop.time()
        self.limit = limit
        self.deadline = self._began + limit if limit > 0 else 0.0
        attempt.held = self
        endpoint.open += 1
        self._task: asyncio.Task[Connection] | None = pool.loop.create_task(self._make(), name="connect")
        self._task.add_done_callback(self._made)

    def give_up(self) -> None:
        """See connection.Held."""
        self.deadline = 0.0
        if self._task is not None:
            self._task.cancel()

    def fail(self, error: NotSent) -> None:
        """End the attempt so, if it has not ended."""
        waited = self._attempt.held is self
        self.give_up()
        if not waited:
            return
        if self._trusted and not error.own and self._pool.on_unreached is not None:
            self._pool.on_unreached(self._endpoint.address.engine)
        self._attempt.fail(error)

    async def _make(self) -> Connection:
        try:
            return await self._connect()
        except NotSent as error:
            if not error.own or not self._pool.close_idle():
                raise
            # They give their sockets back in this turn of the loop.
            await asyncio.sleep(0)
            return await self._connect()

    async def _connect(self) -> Connection:
        pool, endpoint = self._pool, self._endpoint
        address, to = endpoint.address, endpoint.origin
        context = pool.trust(address.tls) if to.https else None
        self._trusted = True

        def make(raw: socket.socket) -> asyncio.Protocol:
            return cast(asyncio.Protocol, Connection(endpoint, raw, tls=to.https))

        made = await connect(to, pool.names, make, server_name=address.server_name, context=context)
        return cast(Connection, made)

    def _made(self, task: asyncio.Task[Connection]) -> None:
        # What it failed of knows the frames that it went through, and they this.
        self._task = None
        error = NotSent("connecting was given up", own=True) if task.cancelled() else task.exception()
        if error is None:
            self._endpoint.opened(task.result())
        self._pool.gone(self)
        self._endpoint.left()
        if error is None:
            self._use(task.result())
        elif isinstance(error, NotSent):
            self.fail(error)
        else:
            self.fail(NotSent(str(error) or type(error).__name__, own=True))
            raise error

    def _use(self, connection: Connection) -> None:
        pool = self._pool
        if pool.on_connect is not None:
            pool.on_connect(pool.loop.time() - self._began)
        if not connection.usable():
            self.fail(NotSent("the engine closed the connection as soon as it was made"))
        elif self._attempt.held is self:
            connection.carry(self._attempt, self._outgoing)
        else:
            self._endpoint.keep(connection)
