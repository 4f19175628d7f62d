"""The brief wait while every eligible engine is at its limit, as futures over the core's queues.

On the request path. A place is given by picking for the waiter, in the queue's own order, whenever something may have
become free; a waiter that leaves gives its place back in the same turn, a pick it was given too (HAS-04). Must not poll
while nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.core.view import PolicyView

# What frees engines without an event (a penalty that ends, a deadline) is looked for this often while anybody waits.
LOOK_EVERY: Final = 0.05


@dataclass(slots=True)
class _Place:
    request: RequestFacts
    refusal: Refusal
    given: asyncio.Future[Pick | Refusal]


class Waiting:
    """All queues of a router. ``changed`` is told how many wait."""

    def __init__(self, selector: Selector, loop: asyncio.AbstractEventLoop, changed: Callable[[int], None]) -> None:
        self._selector = selector
        self._loop = loop
        self._changed = changed
        self._policies: dict[str, PolicyView] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = 0

    async def wait(self, policy: PolicyView, priority: int, request: RequestFacts, refusal: Refusal) -> Pick | Refusal:
        """A pick, or ``refusal`` when the queue is full or the deadline passes."""
        place = _Place(request, refusal, self._loop.create_future())
        entered = policy.queue.enter(priority, self._loop.time(), tag=place)
        if entered.displaced is not None:
            _refuse(entered.displaced.tag)
        if entered.waiter is None:
            return refusal
        self._policies[policy.key] = policy
        self._count(1)
        self._look_later()
        try:
            return await place.given
        except asyncio.CancelledError:
            policy.queue.leave(entered.waiter)
            if place.given.done() and not place.given.cancelled() and isinstance(given := place.given.result(), Pick):
                given.release()
                self.wake()
            raise
        finally:
            self._count(-1)

    def wake(self) -> None:
        """Something may have become free."""
        if not self._waiting:
            return
        now = self._loop.time()
        for key, policy in list(self._policies.items()):
            for waiter in policy.queue.expire(now):
                _refuse(waiter.tag)
            while policy.queue.take(lambda waiter: self._fits(waiter.tag, now)) is not None:
                pass
            if not len(policy.queue):
                del self._policies[key]

    def _fits(self, place: _Place, now: float) -> bool:
        if place.given.done():
            return True
        picked = self._selector.pick(place.request, now)
        if isinstance(picked, Refusal):
            if picked.queue:
                return False
            place.given.set_result(picked)
            return True
        place.given.set_result(picked)
        return True

    def _look_later(self) -> None:
        if self._timer is None and self._policies:
            self._timer = self._loop.call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._timer = None
        self.wake()
        self._look_later()

    def _count(self, change: int) -> None:
        self._waiting += change
        self._changed(self._waiting)


def _refuse(place: _Place) -> None:
    if not place.given.done():
        place.given.set_result(place.refusal)
