"""One timer a request: connect, first byte, idle, send, unary; and the hand that ends requests at shutdown.

On the request path. ``arm`` only notes a deadline; the loop's timer is set anew at most once per expiry, because
re-arming a timer for every chunk costs more than relaying the chunk. An expiry cancels the task once and comes out of
``with watch:`` as Expired, never mixed up with a client that left (CancelledError). Never a total limit on a stream.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Expired(Exception):
    """A limit in time was reached, or the router ends its requests; ``kind`` says which."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Watch:
    """Watches one task. Use ``with watch:`` around what may expire; may be entered again."""

    __slots__ = ("_armed", "_cancelling", "_deadline", "_fired", "_handle", "_loop", "_task", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[object] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._when = 0.0
        self._armed = ""
        self._deadline = 0.0
        self._fired: str | None = None
        self._cancelling = 0

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self.disarm()
        fired, self._fired = self._fired, None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if fired is None:
            return
        assert task is not None
        own = task.uncancel() <= self._cancelling
        if own and (value is None or isinstance(value, asyncio.CancelledError)):
            raise Expired(fired) from value

    def arm(self, kind: str, seconds: float) -> None:
        """Expire as ``kind`` after ``seconds`` from now unless armed anew or disarmed; 0 is no limit."""
        if seconds <= 0:
            self.disarm()
            return
        self._armed = kind
        self._deadline = self._loop.time() + seconds
        if self._handle is None or self._when > self._deadline:
            self._set()

    def disarm(self) -> None:
        """No limit for now."""
        self._deadline = 0.0

    def expire(self, kind: str) -> None:
        """End what is being watched, now."""
        if self._task is not None and self._fired is None:
            self._fired = kind
            self._task.cancel()

    def _set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._when = self._deadline
        self._handle = self._loop.call_at(self._when, self._ring)

    def _ring(self) -> None:
        self._handle = None
        if self._deadline == 0.0:
            return
        if self._loop.time() < self._deadline:
            self._set()
        else:
            self.expire(self._armed)
