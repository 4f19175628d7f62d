"""The wait for a place, in the turns where places are given and taken."""

from collections.abc import Iterator

import pytest

from headrace_api.table import TableQueue
from headrace_router.core.build_view import build_view
from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.proxy.waiting import LOOK_EVERY, Place, Waiting
from support.fake_loop import FakeLoop
from support.router_table import EngineAt, routing_table


class Asker:
    def __init__(self) -> None:
        self.heard: list[Pick | Refusal] = []
        self.place: Place | None = None

    def given(self, picked: Pick | Refusal) -> None:
        self.heard.append(picked)


class Queue:
    """One engine with one place and a queue of two."""

    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        queue = TableQueue(max=2, deadline=30.0)
        table = routing_table({"a": EngineAt(("http://127.0.0.1:9",), limit=1)}, queue=queue)
        self.selector = Selector(None, rng=lambda: 0.5)
        self.selector.install(build_view([table], self.selector.view))
        self.counts: list[int] = []
        self.waiting = Waiting(self.selector, loop.current(), self.counts.append)

    def take(self) -> Pick:
        picked = self.selector.pick(RequestFacts("m"), self.loop.time())
        assert isinstance(picked, Pick)
        return picked

    def enter(self, priority: int = 0) -> Asker:
        request = RequestFacts("m")
        refusal = self.selector.pick(request, self.loop.time())
        assert isinstance(refusal, Refusal)
        assert refusal.queue
        asker = Asker()
        asker.place = self.waiting.enter(self.selector.view.policies[0], priority, request, refusal, asker)
        assert asker.heard == [], "nobody hears anything before enter has returned"
        return asker

    @property
    def in_flight(self) -> int:
        return self.selector.view.engines["inference/a"].state.in_flight


@pytest.fixture
def queue() -> Iterator[Queue]:
    loop = FakeLoop()
    with loop.running():
        yield Queue(loop)


def test_a_place_goes_to_the_highest_priority_first(queue: Queue) -> None:
    """protection.md, Load shedding: highest priority first; a full queue gives up its lowest for a higher one."""
    held = queue.take()
    low, lower = queue.enter(1), queue.enter(0)
    high = queue.enter(5)
    queue.loop.advance()
    assert isinstance(lower.heard[0], Refusal)
    held.release()
    queue.waiting.wake()
    picked = high.heard[0]
    assert isinstance(picked, Pick)
    assert low.heard == []
    picked.release()
    queue.waiting.wake()
    last = low.heard[0]
    assert isinstance(last, Pick)
    last.release()
    assert queue.counts[-1] == queue.waiting.count == 0
    assert queue.in_flight == 0


def test_a_place_given_to_one_who_leaves_in_the_same_turn_goes_on(queue: Queue) -> None:
    """HAS-04 (https://github.com/kubeai-project/kubeai/issues/447): never held by a dead request."""
    held = queue.take()
    leaver, stayer = queue.enter(), queue.enter()
    assert leaver.place is not None
    held.release()
    queue.waiting.leave(leaver.place)
    queue.waiting.wake()
    assert leaver.heard == []
    picked = stayer.heard[0]
    assert isinstance(picked, Pick)
    picked.release()
    assert queue.in_flight == 0


def test_who_is_told_may_make_another_leave(queue: Queue) -> None:
    """What one answer sets off may end another's wait before it hears of the pick that it was given."""
    queue.selector.install(
        build_view([routing_table({"a": EngineAt(("http://x",), limit=2)}, revision=2)], queue.selector.view)
    )
    held = [queue.take(), queue.take()]
    first, second = queue.enter(), queue.enter()
    hear = first.given

    def given(picked: Pick | Refusal) -> None:
        hear(picked)
        assert second.place is not None
        queue.waiting.leave(second.place)

    first.given = given  # type: ignore[method-assign]
    for each in held:
        each.release()
    queue.waiting.wake()
    assert second.heard == []
    assert queue.in_flight == 1
    assert isinstance(first.heard[0], Pick)
    first.heard[0].release()
    assert queue.in_flight == queue.waiting.count == 0


def test_a_full_queue_refuses_at_once(queue: Queue) -> None:
    held = queue.take()
    askers = [queue.enter() for _ in range(2)]
    assert queue.enter().place is None
    for asker in askers:
        assert asker.place is not None
        queue.waiting.leave(asker.place)
    held.release()
    assert len(queue.selector.view.policies[0].queue) == 0
    assert queue.counts[-1] == 0


def test_the_deadline_refuses_and_nothing_is_polled_when_nobody_waits(queue: Queue) -> None:
    held = queue.take()
    late = queue.enter()
    queue.loop.advance(29.0)
    assert late.heard == []
    queue.loop.advance(1.0 + 2 * LOOK_EVERY)
    assert isinstance(late.heard[0], Refusal)
    held.release()
    left = queue.loop
    left.advance(2 * LOOK_EVERY)
    assert left.timers == 0


def test_who_leaves_last_ends_the_polling(queue: Queue) -> None:
    held = queue.take()
    asker = queue.enter()
    assert asker.place is not None
    queue.waiting.leave(asker.place)
    queue.loop.advance(3 * LOOK_EVERY)
    assert queue.loop.timers == 0
    held.release()
