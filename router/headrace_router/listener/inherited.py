"""Listeners that several processes accept from: each takes its part of the connections, and waits for nobody.

On the path of new connections, not of requests. The kernel wakes all that listen, and whoever is first would take all
that is there; connections stay for hours where they are. So a process that has more of them than another leaves a new
one alone for a moment, then takes it if it is still there. Must not keep a connection waiting for longer than that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import ClassVar

from headrace_router.listener.accepting import Accepting
from headrace_router.listener.listener import Listener


class Inherited(Accepting):
    """Accepts from ``sockets`` until closed, which ends this process's part alone. To be made inside a running loop.

    more: told how many connections this process has, says whether that is more than others have.
    """

    at_once: ClassVar[int] = 8

    def __init__(self, listener: Listener, sockets: Sequence[socket.socket], more: Callable[[int], bool]) -> None:
        super().__init__(sockets)
        self._listener = listener
        self._more = more
        self._making: set[asyncio.Task[None]] = set()

    async def made(self) -> None:
        """Until every connection that was accepted is the listener's."""
        if self._making:
            await asyncio.wait(self._making)

    def _leaves(self) -> bool:
        return self._more(len(self._listener.connections) + len(self._making))

    def _arrived(self, made: socket.socket) -> None:
        task = self._loop.create_task(self._make(made), name="new connection")
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    async def _make(self, made: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._listener, made)
        except OSError:
            made.close()
