"""The order in which idle connections of clients make room: the longest idle first, and what a look costs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, cast

import pytest

from headrace_router.listener.idle import LOOKED_AT, Idle

# Connections of the tests' own.
pytestmark = pytest.mark.stand_ins


class One:
    """A connection as the order sees it. looked: how often the order asked for it."""

    def __init__(self, since: float = 0.0) -> None:
        self.idles = True
        self.begins = False
        self.since = since
        self.passing = False
        self.looked = 0

    @property
    def waits(self) -> bool:
        self.looked += 1
        return self.idles

    def spare(self, now: float) -> bool:
        return not self.passing


def order(ones: Iterable[One]) -> Idle:
    made = Idle()
    made.fill(cast(Any, ones))
    return made


def test_the_longest_idle_comes_first_whatever_the_order_of_connecting() -> None:
    ones = [One(since) for since in (3.0, 1.0, 2.0)]
    busy = One(0.0)
    busy.idles = False
    idle = order([*ones, busy])
    assert [idle.take(9.0) for _ in range(4)] == [ones[1], ones[2], ones[0], None]


def test_what_is_used_again_comes_last_and_what_runs_not_at_all() -> None:
    one, other, third = ones = [One() for _ in range(3)]
    idle = order(ones)
    one.idles = False
    other.idles = False
    other.idles = True
    idle.add(cast(Any, other))
    assert [idle.take(9.0) for _ in range(3)] == [third, other, None]
    one.idles = True
    idle.add(cast(Any, one))
    idle.discard(cast(Any, one))
    assert idle.take(9.0) is None


def test_bytes_on_their_way_spare_it_this_time() -> None:
    one, other = ones = [One(), One()]
    idle = order(ones)
    one.passing = True
    assert idle.take(9.0) is other
    assert idle.take(9.0) is None
    one.passing = False
    assert idle.take(9.0) is one


def test_the_longest_idle_in_any_course_of_events() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        ones = [One(float(n)) for n in range(rng.randint(1, 8))]
        idle, known = order(ones), list(ones)
        for _ in range(60):
            one = rng.choice(ones)
            event = rng.choice(("begins", "ends", "taken"))
            if event == "taken":
                assert idle.take(0.0) is (known[0] if known else None), seed
                for gone in known[:1]:
                    known.remove(gone)
                    ones.remove(gone)
                    ones.append(One())
                    known.append(ones[-1])
                    idle.add(cast(Any, ones[-1]))
            elif event == "begins" and one.idles:
                one.idles = False
                known.remove(one)
            elif event == "ends" and not one.idles:
                one.idles = True
                known.append(one)
                idle.add(cast(Any, one))


def test_looks_are_paid_for_by_what_happened() -> None:
    """Thousands in use cost thousands of newcomers nothing each, nor do thousands with bytes on their way."""
    ones = [One() for _ in range(1000)]
    idle = order(ones)
    for one in ones:
        one.idles = False
    before = sum(one.looked for one in ones)
    for _ in range(1000):
        assert idle.take(0.0) is None
    assert sum(one.looked for one in ones) - before == 1000
    for one in ones:
        one.idles = one.passing = True
        idle.add(cast(Any, one))
    before = sum(one.looked for one in ones)
    assert idle.take(0.0) is None
    assert sum(one.looked for one in ones) - before == LOOKED_AT
