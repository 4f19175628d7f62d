"""The selection of one process of several: limits hold over all of them, and room is shared out among them.

On the request path of routers of several processes, pure. All it knows of the others it reads from shared cells
(shared.py). Must not wait for another process: one that hangs holds what it holds, and nothing else.
"""

from __future__ import annotations

from typing import Final

from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.selection import Pick, Selector, at_limit
from headrace_router.core.shared import IN_FLIGHT, WANTED_AT, WANTS_SINCE, WANTS_US, SharedEngine, SharedPool

# Engines that one request is put off by before it counts as refused for want of room.
MOST_TRIED: Final = 4


class SharedSelector(Selector):
    """See above.

    Two processes may take the last place in the same microsecond: each looks again when its own claim can be seen, and
    goes back if it was one too many. A process that holds more of a full engine than one that waits for it leaves that
    one the next place, so that it doesn't matter which of them clients happen to be connected to.
    """

    _wanting: SharedPool | None = None

    def pick(self, request: RequestFacts, now: float) -> Pick | Refusal:
        """An engine and endpoint for one attempt, or why there is none. ``now``: monotonic seconds."""
        picked = super().pick(request, now)
        if isinstance(picked, Pick):
            if (
                (limit := picked.limit)
                and picked.state.in_flight + self.view.states.processes > limit + 1
                and _beyond(picked, limit, now)
            ):
                picked = self._elsewhere(picked, request, now)
                self._remember(request, picked, now)
            elif self._wanting is not None:
                self._remember(request, picked, now)
        elif picked.queue:
            self._remember(request, picked, now)
        return picked

    def _elsewhere(self, picked: Pick, request: RequestFacts, now: float) -> Pick | Refusal:
        """Another engine, as if this one were full."""
        held: list[SharedEngine] = []
        again: Pick | Refusal = picked
        while isinstance(again, Pick) and (limit := again.limit) and _beyond(again, limit, now):
            again.release()
            if len(held) == MOST_TRIED:
                again = at_limit()
                break
            state = again.state
            assert isinstance(state, SharedEngine)
            held.append(state)
            state.held_back += limit
            again = super().pick(request, now)
        for state in held:
            state.held_back = 0
            # A refusal that came of this must not be kept: it isn't true any more.
            state.changed()
        return again

    def _remember(self, request: RequestFacts, picked: Pick | Refusal, now: float) -> None:
        """Tell the others what this process wants, and when it has got it."""
        model = self.view.models.get(request.model)
        if model is None or not isinstance(model.pool, SharedPool):
            return
        if isinstance(picked, Pick):
            model.pool.got()
            self._wanting = None if self._wanting is model.pool else self._wanting
        elif picked.queue:
            model.pool.wants(int(now * 1e6))
            self._wanting = model.pool


def _beyond(picked: Pick, limit: int, now: float) -> bool:
    """Whether the pick, which counts already, is one too many."""
    state = picked.state
    assert isinstance(state, SharedEngine)
    number = state.in_flight
    if number + state.memory.processes <= limit + 1:
        return False
    return number > limit or number > limit - _owed(state, int(now * 1e6))


def _owed(state: SharedEngine, now_us: int) -> int:
    """Places that are others': of those that want one, have fewer here than this process, or waited longer."""
    me = state.memory.process
    counts = state.cells.of(IN_FLIGHT)
    mine = counts[me]
    most = 0
    for pool in state.pools:
        assert isinstance(pool, SharedPool)
        since, at = pool.cells.of(WANTS_SINCE), pool.cells.of(WANTED_AT)
        own = since[me] or now_us
        owed = 0
        for other, count in enumerate(counts):
            if other == me or not since[other] or now_us - at[other] > WANTS_US or count >= mine:
                continue
            owed += count + 1 < mine or since[other] < own
        most = max(most, owed)
    return most
