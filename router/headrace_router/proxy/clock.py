"""Limits in time without a timer a request: one coarse sweep over whatever is running.

On the request path. Arming a limit is one assignment; setting a timer of the loop for every request, or anew for every
chunk, costs more than relaying the chunk. Limits come at most two sweeps late and never early. A loop that was held up
blames nobody before it has read what waits in its sockets. Must keep no timer while nothing is watched.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

log = logging.getLogger("headrace.router")

# Seconds between two sweeps of what limits requests.
SWEEP: Final = 0.05


class Timed(Protocol):
    """What can be watched. Hashed by identity.

    deadline: on the loop's clock, 0 is none. touched: something came since the last sweep; ``rearm`` is then called
    with the time, instead of an assignment of the deadline at every chunk.
    """

    deadline: float
    touched: bool

    def rearm(self, now: float) -> None:
        """Something came: set the deadline anew."""

    def expired(self) -> None:
        """The deadline has passed."""


class Deadlines:
    """Sweeps over ``items`` every ``period`` seconds while there are any. Add and discard by the methods alone."""

    __slots__ = ("_due", "_handle", "_loop", "_period", "_spared", "items")

    def __init__(self, loop: asyncio.AbstractEventLoop, period: float = SWEEP) -> None:
        self._loop = loop
        self._period = period
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._spared = False
        # In the order in which they were added, so that what one sweep does is the same whatever the addresses.
        self.items: dict[Timed, None] = {}

    def add(self, item: Timed) -> None:
        """Watch it from now on."""
        self.items[item] = None
        if self._handle is None:
            self._sweep_later()

    def discard(self, item: Timed) -> None:
        """Watch it no longer; harmless when it isn't watched."""
        self.items.pop(item, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self.items.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _sweep_later(self) -> None:
        self._due = self._loop.time() + self._period
        self._handle = self._loop.call_later(self._period, self._sweep)

    def _sweep(self) -> None:
        self._handle = None
        now = self._loop.time()
        # Timers come before sockets in a turn of the loop.
        self._spared = now - self._due > self._period and not self._spared
        if self.items:
            self._sweep_later()
        late = []
        for item in self.items:
            if item.touched:
                item.touched = False
                item.rearm(now)
            elif 0.0 < item.deadline <= now and not self._spared:
                late.append(item)
        for item in late:
            # What one expiry sets off may have ended or moved on another.
            if item in self.items and 0.0 < item.deadline <= now:
                try:
                    item.expired()
                except Exception:
                    log.exception("a limit in time could not be kept")
