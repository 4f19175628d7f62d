"""The brief queue: bounded, by priority, with a deadline."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_router.core.admission import Waiter, WaitQueue
from headrace_router.core.facts import whole_seconds


def entered(queue: WaitQueue, priority: int, tag: Any = None, now: float = 0.0) -> Waiter:
    waiter, displaced = queue.enter(priority, now, tag)
    assert waiter is not None
    assert displaced is None
    return waiter


def order(queue: WaitQueue) -> list[Any]:
    found = []
    while (waiter := queue.take(lambda _: True)) is not None:
        found.append(waiter.tag)
    return found


def test_highest_priority_first_then_first_come() -> None:
    queue = WaitQueue()
    for tag, priority in (("b1", 10), ("i1", 100), ("b2", 10), ("i2", 100)):
        entered(queue, priority, tag)
    assert len(queue) == 4
    assert order(queue) == ["i1", "i2", "b1", "b2"]
    assert len(queue) == 0


def test_a_full_queue_refuses_at_once() -> None:
    """SCA-04: queue 2: the third is refused without waiting. https://github.com/BerriAI/litellm/issues/27823"""
    queue = WaitQueue(limit=2)
    entered(queue, 10)
    entered(queue, 10)
    assert queue.enter(10, 0.0).waiter is None
    assert queue.enter(5, 0.0).waiter is None
    assert len(queue) == 2


def test_a_higher_priority_displaces_the_last_of_the_lowest() -> None:
    queue = WaitQueue(limit=3)
    for tag, priority in (("b1", 10), ("b2", 10), ("i1", 100)):
        entered(queue, priority, tag)
    waiter, displaced = queue.enter(100, 0.0, "i2")
    assert waiter is not None
    assert displaced is not None
    assert displaced.tag == "b2"
    assert order(queue) == ["i1", "i2", "b1"]


@pytest.mark.parametrize(("limit", "deadline"), [(0, 2.0), (10, 0.0)])
def test_without_places_or_time_nobody_waits(limit: int, deadline: float) -> None:
    assert WaitQueue(limit, deadline).enter(1, 0.0).waiter is None


def test_deadlines() -> None:
    queue = WaitQueue(deadline=2.0)
    first, second = entered(queue, 1, now=0.0), entered(queue, 9, now=1.0)
    assert queue.next_deadline() == 2.0
    assert queue.expire(1.9) == []
    assert queue.expire(2.0) == [first]
    assert queue.next_deadline() == 3.0
    assert queue.expire(10.0) == [second]
    assert queue.next_deadline() is None


def test_leaving_is_idempotent() -> None:
    queue = WaitQueue()
    waiter = entered(queue, 1)
    other = entered(queue, 1)
    queue.leave(waiter)
    queue.leave(waiter)
    assert len(queue) == 1
    assert queue.take(lambda _: True) is other
    queue.leave(other)
    assert len(queue) == 0


def test_only_who_fits_is_taken() -> None:
    queue = WaitQueue()
    entered(queue, 100, "other model")
    entered(queue, 10, "ours")
    taken = queue.take(lambda waiter: waiter.tag == "ours")
    assert taken is not None
    assert taken.tag == "ours"
    assert queue.take(lambda waiter: waiter.tag == "ours") is None
    assert len(queue) == 1


def test_new_figures_hold_for_newcomers() -> None:
    queue = WaitQueue(limit=5, deadline=2.0)
    entered(queue, 1)
    queue.configure(1, 1e9)
    assert queue.enter(1, 0.0).waiter is None
    assert queue.deadline == 600.0
    assert queue.next_deadline() == 2.0


@pytest.mark.parametrize(("seconds", "whole"), [(0.0, 1), (0.4, 1), (1.0, 1), (1.2, 2), (17.0, 17), (-3.0, 1)])
def test_retry_after_is_a_whole_number_from_one_on(seconds: float, whole: int) -> None:
    """SCA-04: never "0.4" nor 0. https://github.com/BerriAI/litellm/issues/4695"""
    assert whole_seconds(seconds) == whole
