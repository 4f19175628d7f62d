"""Limits in time by one sweep."""

import logging

import pytest

from headrace_router.proxy.clock import SWEEP, Deadlines
from support.fake_loop import FakeLoop


class Item:
    """Watched; ``limit`` is what a touch gives it anew."""

    def __init__(self, deadline: float = 0.0, limit: float = 0.0) -> None:
        self.deadline = deadline
        self.touched = False
        self.limit = limit
        self.fired = 0

    def rearm(self, now: float) -> None:
        self.deadline = now + self.limit

    def expired(self) -> None:
        self.fired += 1
        self.deadline = 0.0


def test_a_limit_comes_at_most_two_sweeps_late_and_never_early() -> None:
    loop = FakeLoop()
    deadlines = Deadlines(loop.current())
    item = Item(loop.time() + 1.0)
    deadlines.add(item)
    loop.advance(0.99)
    assert item.fired == 0
    loop.advance(0.01 + 2 * SWEEP)
    assert item.fired == 1
    loop.advance(5.0)
    assert item.fired == 1


def test_what_is_touched_lives_on() -> None:
    loop = FakeLoop()
    deadlines = Deadlines(loop.current())
    item = Item(loop.time() + 0.2, limit=0.2)
    deadlines.add(item)
    for _ in range(20):
        item.touched = True
        loop.advance(0.1)
    assert item.fired == 0
    loop.advance(0.2 + 2 * SWEEP)
    assert item.fired == 1


def test_no_deadline_is_no_limit() -> None:
    loop = FakeLoop()
    deadlines = Deadlines(loop.current())
    item = Item()
    deadlines.add(item)
    loop.advance(1000.0)
    assert item.fired == 0


def test_no_timer_is_left_when_nothing_is_watched() -> None:
    loop = FakeLoop()
    deadlines = Deadlines(loop.current(), period=1.0)
    item = Item(loop.time() + 100.0)
    deadlines.add(item)
    assert loop.timers == 1
    deadlines.discard(item)
    deadlines.discard(item)
    loop.advance(2.0)
    assert loop.timers == 0
    deadlines.add(item)
    deadlines.close()
    assert loop.timers == 0


def test_an_expiry_that_fails_or_ends_another_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop = FakeLoop()
    deadlines = Deadlines(loop.current())
    due = loop.time() + 0.1
    items = [Item(due) for _ in range(6)]

    def fail() -> None:
        raise KeyError("a bug")

    def end_the_others() -> None:
        ended.append(1)
        for item in items:
            if item is not killer:
                deadlines.discard(item)

    ended: list[int] = []
    broken, killer = Item(due), items[0]
    broken.expired = fail  # type: ignore[method-assign]
    killer.expired = end_the_others  # type: ignore[method-assign]
    for item in [*items, broken]:
        deadlines.add(item)
    with caplog.at_level(logging.ERROR):
        loop.advance(0.3)
    assert ended
    assert "a bug" in caplog.text
    assert all(item.fired <= 1 for item in items)
    fired = [item.fired for item in items]
    loop.advance(1.0)
    assert [item.fired for item in items] == fired


def test_a_loop_that_was_held_up_reads_its_sockets_before_it_blames_anybody() -> None:
    """What a limit waits for may lie in a socket already; timers come before sockets in a turn of the loop."""
    loop = FakeLoop()
    deadlines = Deadlines(loop.current())
    silent, answering = Item(loop.time() + 1.0), Item(loop.time() + 1.0, limit=1.0)
    for item in (silent, answering):
        deadlines.add(item)
    loop.hold_up(60.0)
    assert silent.fired == answering.fired == 0
    answering.touched = True
    loop.advance(2 * SWEEP)
    assert (silent.fired, answering.fired) == (1, 0)


def test_a_loop_that_is_always_late_still_keeps_limits() -> None:
    loop = FakeLoop()
    deadlines = Deadlines(loop.current())
    item = Item(loop.time() + 1.0)
    deadlines.add(item)
    for _ in range(4):
        loop.hold_up(1.0)
    assert item.fired == 1
