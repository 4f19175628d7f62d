"""The brief wait while every eligible engine is at its limit: who waits, who goes next, who is refused.

On the request path. Decisions only: the shell does the waiting and hangs its own object on ``tag``. Highest priority
first, within one first come first served, nobody beyond a deadline. A full queue gives up its last waiter of the
lowest priority for a higher one, so that no interactive request is refused while batch waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

MAX_DEADLINE_S: Final = 600.0


class Waiter:
    """One waiting request. priority: the table's value, higher goes first. deadline: on the caller's clock."""

    __slots__ = ("deadline", "priority", "tag", "waiting")

    def __init__(self, priority: int, deadline: float, tag: Any) -> None:
        self.priority = priority
        self.deadline = deadline
        self.tag = tag
        self.waiting = True


class Entered(NamedTuple):
    """waiter: None if there is no place. displaced: whoever lost theirs to it and is to be refused at once."""

    waiter: Waiter | None
    displaced: Waiter | None = None


class WaitQueue:
    """A bounded priority queue; a handful of priorities, so one ordered mapping of lists in order of arrival."""

    __slots__ = ("_by_priority", "_count", "deadline", "limit")

    def __init__(self, limit: int = 100, deadline: float = 2.0) -> None:
        self._by_priority: dict[int, dict[Waiter, None]] = {}
        self._count = 0
        self.configure(limit, deadline)

    def configure(self, limit: int, deadline: float) -> None:
        """Take on a table's figures; who waits already keeps place and deadline."""
        self.limit = limit
        self.deadline = min(deadline, MAX_DEADLINE_S)

    def __len__(self) -> int:
        return self._count

    def elsewhere(self) -> int:
        """Who waits in queues of other processes that are one queue with this."""
        return 0

    def enter(self, priority: int, now: float, tag: Any = None) -> Entered:
        """A place in the queue, or none; maybe at the cost of a waiter of lower priority."""
        if self.limit == 0 or self.deadline <= 0.0:
            return Entered(None)
        displaced = None
        if self._count + self.elsewhere() >= self.limit:
            displaced = self._lowest() if self._count else None
            if displaced is None or displaced.priority >= priority:
                return Entered(None)
            self.leave(displaced)
        waiter = Waiter(priority, now + self.deadline, tag)
        self._by_priority.setdefault(priority, {})[waiter] = None
        self._count += 1
        return Entered(waiter, displaced)

    def leave(self, waiter: Waiter) -> None:
        """The waiter goes (its client left, or it was served otherwise). Twice is harmless."""
        if not waiter.waiting:
            return
        waiter.waiting = False
        group = self._by_priority[waiter.priority]
        del group[waiter]
        if not group:
            del self._by_priority[waiter.priority]
        self._count -= 1

    def expire(self, now: float) -> list[Waiter]:
        """Those whose deadline has passed, taken out: refuse them."""
        late = [waiter for group in self._by_priority.values() for waiter in group if waiter.deadline <= now]
        for waiter in late:
            self.leave(waiter)
        return late

    def take(self, fits: Callable[[Waiter], bool]) -> Waiter | None:
        """The first in line that ``fits`` (an engine is free that it may use), taken out; None if nobody does."""
        for priority in sorted(self._by_priority, reverse=True):
            for waiter in self._by_priority[priority]:
                if fits(waiter):
                    self.leave(waiter)
                    return waiter
        return None

    def next_deadline(self) -> float | None:
        """When to call ``expire`` next; None when nobody waits."""
        return min((w.deadline for group in self._by_priority.values() for w in group), default=None)

    def _lowest(self) -> Waiter:
        return next(reversed(self._by_priority[min(self._by_priority)]))
