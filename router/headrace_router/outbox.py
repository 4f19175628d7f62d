"""Writes that leave together at the end of a turn of the loop.

On the request path. A write to a local or a near peer wakes it; written one by one between other work, each wakes it
anew, which costs the kernel more than the write (a sixth of a saturated router's time). Gathered, the first wakes it
and it finds the others. Nothing waits longer than until the turn ends or AT_ONCE others have come. Must not reorder
what goes to one transport.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import mypyc_attr

log = logging.getLogger("headrace.router")

# Writes that wait at most: the first of a burst must not wait until all of the burst are understood.
AT_ONCE: Final = 16
# Larger pieces are written at once: what they wake has enough to do, and whether they fit is known at once.
SMALL: Final = 32 * 1024


class Outbox:
    """Those of one loop. Flushes by itself."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Callable[[], None]] = []

    def add(self, leave: Callable[[], None]) -> None:
        """To be called when what waits leaves, in the order in which it came."""
        waiting = self._waiting
        waiting.append(leave)
        size = len(waiting)
        if size == 1:
            self._loop.call_soon(self.flush)
        elif size >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Let go of all that waits."""
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for leave in waiting:
                try:
                    leave()
                except Exception:
                    log.exception("a write failed")


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientTransport(ABC):
    """What an answer needs of a connection, as asyncio's transports have it."""

    __slots__ = ()

    @abstractmethod
    def write(self, data: bytes) -> None: ...
    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def abort(self) -> None: ...
    @abstractmethod
    def is_closing(self) -> bool: ...
    @abstractmethod
    def get_write_buffer_size(self) -> int: ...
    @abstractmethod
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class Writer(ClientTransport):
    """The writing side of a client's transport; closing, aborting and ending it go through here too.

    ended: the transport was closed, aborted or lost.
    """

    __slots__ = ("_data", "_outbox", "ended", "transport")

    def __init__(self, outbox: Outbox, transport: asyncio.Transport) -> None:
        self._outbox = outbox
        self._data: bytes | None = None
        self.transport = transport
        self.ended = False

    def write(self, data: bytes) -> None:
        """Write soon, in order. To one that has ended nothing is written."""
        waiting = self._data
        if waiting is not None:
            self._data = data = waiting + data
            if len(data) > SMALL:
                self.flush()
        elif len(data) > SMALL:
            if not self.is_closing():
                self.transport.write(data)
        else:
            self._data = data
            self._outbox.add(self.flush)

    def flush(self) -> None:
        """Write what waits, now."""
        data = self._data
        if data is not None:
            self._data = None
            if not self.transport.is_closing():
                self.transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self.ended or self.transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that haven't left."""
        own = 0 if self._data is None else len(self._data)
        return own + self.transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        return self.transport.get_extra_info(name, default)

    def can_write_eof(self) -> bool:
        """See asyncio.WriteTransport."""
        return self.transport.can_write_eof()

    def write_eof(self) -> None:
        """See asyncio.WriteTransport."""
        self.flush()
        self.transport.write_eof()

    def close(self) -> None:
        """Close when all has left."""
        self.flush()
        self.ended = True
        self.transport.close()

    def abort(self) -> None:
        """Close now; what waits is lost."""
        self._data = None
        self.ended = True
        self.transport.abort()
