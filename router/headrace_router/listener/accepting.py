"""Accepts connections from sockets that others may accept from too, some in each turn of the loop.

On the path of new connections, not of requests. A connection may be left to another process for a moment, again and
again while that one may still take it. When there is no file or memory for one it stays in the queue, and this rests.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from time import monotonic
from typing import ClassVar, Final

from headrace_router.listener.sockets import arrived

log = logging.getLogger("headrace.router")

# Seconds that a connection is left to others.
LEFT: Final = 0.002
# Seconds of rest when there is no file left for a connection.
REST: Final = 0.5


class Accepting(ABC):
    """Accepts from ``sockets`` until closed. To be made inside a running loop.

    at_once: connections accepted in one turn of the loop.
    """

    at_once: ClassVar[int]

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = tuple(sockets)
        self._loop = asyncio.get_running_loop()
        self._closed = False
        for each in sockets:
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    @abstractmethod
    def _leaves(self, since: float | None, *, able: bool = True) -> bool:
        """Whether a new connection is left to others for a moment. since: when it was first left, by ``monotonic``;
        None: it wasn't yet. able: False: this process can't accept it, and others are to know."""

    @abstractmethod
    def _arrived(self, made: socket.socket) -> None:
        """A connection that was accepted; it doesn't block."""

    def close(self) -> None:
        """Accept no more."""
        if not self._closed:
            self._closed = True
            for each in self.sockets:
                self._loop.remove_reader(each)
                each.close()

    def _accept(self, listening: socket.socket, since: float | None = None, *, leave: bool = True) -> None:
        for _ in range(self.at_once):
            if leave and self._leaves(since):
                self._again(listening, LEFT, monotonic() if since is None else since)
                return
            try:
                made, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of files or memory: the connection stays in the queue, and to ask again at once would spin.
                log.warning("can't accept a connection: %s", error.strerror or error)
                if leave:
                    self._leaves(monotonic() if since is None else since, able=False)
                self._again(listening, REST, None)
                return
            made.setblocking(False)
            self._arrived(made)

    def _again(self, listening: socket.socket, seconds: float, since: float | None) -> None:
        self._loop.remove_reader(listening)
        self._loop.call_later(seconds, self._resume, listening, since)

    def _resume(self, listening: socket.socket, since: float | None) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)
            # Taken by another meanwhile, it isn't waited for any more.
            if arrived(listening):
                self._accept(listening, since)
