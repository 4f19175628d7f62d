"""The brief wait while every eligible engine is at its limit, as callbacks over the core's queues.

On the request path. A place is given by picking for whoever waits, in the queue's own order, whenever something may
have become free; who leaves gives the place back in the same turn, a pick that was given too (HAS-04). Nobody is told
inside a walk over a queue: what is set off may enter or leave it. Must not poll while nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headrace_router.core.admission import Waiter
from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.core.view import PolicyView

# What frees engines without an event (a penalty that ends, a deadline) is looked for this often while anybody waits.
LOOK_EVERY: Final = 0.05
# Some thirty times the seconds that a look costs for each that waits.
LOOK_COSTS: Final = 1e-4


class Asker(Protocol):
    """Who waits."""

    def given(self, picked: Pick | Refusal) -> None:
        """A pick, or the refusal when the deadline passed or a higher priority took the place. Once."""


class Place:
    """A place in a queue. ``asker``: None once it was left or answered."""

    __slots__ = ("asker", "policy", "refusal", "request", "waiter")

    def __init__(self, policy: PolicyView, request: RequestFacts, refusal: Refusal, asker: Asker) -> None:
        self.policy = policy
        self.request = request
        self.refusal = refusal
        self.asker: Asker | None = asker
        self.waiter: Waiter | None = None


class Waiting:
    """All queues of a router. ``changed`` is told how many wait; ``count`` says it too. look_every: seconds."""

    __slots__ = ("_again", "_changed", "_look_every", "_loop", "_policies", "_selector", "_timer", "_waking", "count")

    def __init__(
        self,
        selector: Selector,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[int], None],
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._look_every = look_every
        self._selector = selector
        self._loop = loop
        self._changed = changed
        self._policies: dict[str, PolicyView] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waking = False
        self._again = False
        self.count = 0

    def enter(
        self, policy: PolicyView, priority: int, request: RequestFacts, refusal: Refusal, asker: Asker
    ) -> Place | None:
        """A place for ``asker``, or None if there is none; ``asker`` hears nothing before this returns."""
        place = Place(policy, request, refusal, asker)
        entered = policy.queue.enter(priority, self._loop.time(), tag=place)
        if entered.displaced is not None:
            displaced: Place = entered.displaced.tag
            self._loop.call_soon(self._tell, displaced, displaced.refusal)
        if entered.waiter is None:
            return None
        place.waiter = entered.waiter
        self._policies[policy.key] = policy
        self._count(1)
        self._look_later()
        return place

    def leave(self, place: Place) -> None:
        """Whoever waited has left; harmless when the place was answered."""
        if place.asker is None:
            return
        place.asker = None
        assert place.waiter is not None
        place.policy.queue.leave(place.waiter)
        self._count(-1)

    def wake(self) -> None:
        """Something may have become free."""
        if not self.count:
            return
        if self._waking:
            self._again = True
            return
        self._waking = True
        try:
            self._again = True
            while self._again:
                self._again = False
                for place, picked in self._given():
                    self._tell(place, picked)
        finally:
            self._waking = False

    def _given(self) -> list[tuple[Place, Pick | Refusal]]:
        """Who gets what now; they have left their queues."""
        now = self._loop.time()
        given: list[tuple[Place, Pick | Refusal]] = []

        def fits(waiter: Waiter) -> bool:
            place: Place = waiter.tag
            picked = self._selector.pick(place.request, now)
            if isinstance(picked, Refusal) and picked.queue:
                return False
            given.append((place, picked))
            return True

        for key, policy in list(self._policies.items()):
            given += [(waiter.tag, waiter.tag.refusal) for waiter in policy.queue.expire(now)]
            while policy.queue.take(fits) is not None:
                pass
            if not len(policy.queue):
                del self._policies[key]
        return given

    def _tell(self, place: Place, picked: Pick | Refusal) -> None:
        asker = place.asker
        if asker is None:
            if isinstance(picked, Pick):
                picked.release()
                self._again = True
            return
        place.asker = None
        self._count(-1)
        asker.given(picked)

    def _look_later(self) -> None:
        if self._timer is None and self.count:
            # A look costs something for each that waits: many aren't looked after as often as a few.
            seconds = max(self._look_every, min(LOOK_EVERY, self.count * LOOK_COSTS))
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self.wake()
        self._look_later()

    def _count(self, change: int) -> None:
        self.count += change
        if not self.count:
            self._policies.clear()
        self._changed(self.count)
