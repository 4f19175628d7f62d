"""Listeners that several processes accept from: each takes its part of the connections, and waits for nobody.

On the path of new connections, not of requests. The kernel wakes all that listen, and whoever is first would take all
that is there; connections stay for hours where they are. So a process that has more of them than another leaves a new
one alone for a moment, then takes it if it is still there. Must not keep a connection waiting for longer than that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

from headrace_router.listener.listener import Listener

log = logging.getLogger("headrace.router")

# Seconds that a connection is left to others.
LEFT: Final = 0.002
# Connections accepted in one turn of the loop, and seconds of rest when there is no file left for one.
ACCEPTS: Final = 8
REST: Final = 0.5


class Inherited:
    """Accepts from ``sockets`` until closed, which ends this process's part alone. To be made inside a running loop.

    more: told how many connections this process has, says whether that is more than others have.
    """

    def __init__(self, listener: Listener, sockets: Sequence[socket.socket], more: Callable[[int], bool]) -> None:
        self.sockets = tuple(sockets)
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._more = more
        self._making: set[asyncio.Task[None]] = set()
        self._closed = False
        for each in sockets:
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Accept no more."""
        if not self._closed:
            self._closed = True
            for each in self.sockets:
                self._loop.remove_reader(each)
                each.close()

    async def made(self) -> None:
        """Until every connection that was accepted is the listener's."""
        if self._making:
            await asyncio.wait(self._making)

    def _accept(self, listening: socket.socket, left: bool = False) -> None:
        for _ in range(ACCEPTS):
            if not left and self._more(len(self._listener.connections) + len(self._making)):
                self._again(listening, LEFT)
                return
            try:
                made, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                # Out of files or memory: the connection stays in the queue, and to ask again at once would spin.
                log.warning("can't accept a connection: %s", error.strerror or error)
                self._again(listening, REST)
                return
            made.setblocking(False)
            task = self._loop.create_task(self._make(made), name="new connection")
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _make(self, made: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._listener, made)
        except OSError:
            made.close()

    def _again(self, listening: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listening)
        self._loop.call_later(seconds, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)
            self._accept(listening, left=True)
