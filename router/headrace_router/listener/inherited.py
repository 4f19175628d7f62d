"""Listeners that several processes accept from: each takes its part of the connections, and waits for nobody.

On the path of new connections, not of requests. The kernel wakes all that listen, and whoever is first would take all
that is there; connections stay for hours where they are. So a process that has more of them than another leaves a new
one alone for a moment, then takes it if it is still there; one that would have to refuse it leaves it to others for as
long as they may have room. Must not keep a connection waiting for longer than that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import ClassVar

from headrace_router.listener.accepting import Accepting
from headrace_router.listener.listener import Listener

# Told how many of clients' connections this process has, whether it has room for one more, the time and since when that
# one has been left; says whether it is to be left to another process.
Leaves = Callable[[int, bool, float, float | None], bool]


def left(
    leaves: Leaves, listener: Listener, arriving: int, protocols: Iterable[object], since: float | None, *, able: bool
) -> bool:
    """Whether one is left to another process. arriving, protocols: see Listener.room; since, able: see Accepting."""
    room = able and listener.room(arriving, protocols)
    return leaves(len(listener.connections) + arriving, room, monotonic(), since)


class Inherited(Accepting):
    """Accepts from ``sockets`` until closed, which ends this process's part alone. To be made inside a running loop.

    leaves: see OneOf.
    """

    at_once: ClassVar[int] = 8

    def __init__(self, listener: Listener, sockets: Sequence[socket.socket], leaves: Leaves) -> None:
        super().__init__(sockets)
        self._listener = listener
        self._left = leaves
        self._making: dict[asyncio.Task[None], asyncio.Protocol] = {}

    async def made(self) -> None:
        """Until every connection that was accepted is the listener's."""
        if self._making:
            await asyncio.wait(self._making)

    def _leaves(self, since: float | None, *, able: bool = True) -> bool:
        making = self._making
        return left(self._left, self._listener, len(making), making.values(), since, able=able)

    def _arrived(self, made: socket.socket) -> None:
        protocol = self._listener()
        task = self._loop.create_task(self._make(made, protocol), name="new connection")
        self._making[task] = protocol
        task.add_done_callback(self._making.pop)

    async def _make(self, made: socket.socket, protocol: asyncio.Protocol) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, made)
        except OSError:
            made.close()
