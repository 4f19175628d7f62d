"""Spills: by price where the table has prices, by load bound where it has none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace_router.core.selection import Selector
from support.router_core import (
    GUARD,
    engine,
    held,
    make_selector,
    make_table,
    one_model,
    route,
)


def test_a_popular_prefix_spreads_over_many_engines() -> None:
    """SCA-05: 200 equal engines, 50 concurrent requests of one key, none ends: no engine has more than 1 of them, and
    the same few take the overflow. Our bound is 1.25 m + 2 sqrt(m) with a floor of 1 (the page before the case).

    https://github.com/kubeai-project/kubeai/pull/519
    """
    weights = {f"e{number}": 50 for number in range(200)}
    taken = [
        [held(selector, b"hot").engine for _ in range(50)]
        for selector in [make_selector(make_table(weights)) for _ in "xy"]
    ]
    assert len(set(taken[0])) == 50
    assert taken[0] == taken[1]


def test_without_prices_keyless_requests_pass_an_overloaded_engine() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    busy = held(selector, b"k")
    others = [held(selector, b"k") for _ in range(30)]
    for pick in others:
        if pick.engine != busy.engine:
            pick.release()
    assert {held(selector).engine for _ in range(4)} != {busy.engine}


def test_without_prices_the_choice_stays_when_nobody_is_within_the_bound() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    first = held(selector, b"k")
    other = ({"ns/a", "ns/b"} - {first.engine}).pop()
    for _ in range(60):
        held(selector, b"k")
    selector.set_ready(other, f"http://{other[3:]}.example:8000", False)
    pick = held(selector, b"k")
    assert (pick.engine, pick.reason) == (first.engine, "affinity")


def test_a_spill_over_the_bound_says_so() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    spilled = next(pick for pick in (held(selector, b"k") for _ in range(60)) if pick.reason == "spill")
    assert spilled.why == "first engine is over its load bound"


def priced(**fields: Any) -> Selector:
    engines = [engine(name, inFlightHere=10.0, inFlightAll=10.0) for name in "abc"]
    models = one_model(*(route(name, 3333 + (name == "a"), workShare=0.1) for name in "abc"))
    return make_selector(make_table({}, models=models, engines=engines, guard=GUARD, **fields))


def test_the_guard_keeps_the_first_choice_until_another_saves_more_than_its_prefix() -> None:
    """m = 10, k = 4: one more costs 2 x 0.1 x 10 x (n - 10 - sqrt 10)/14 s; above 1 s from n = 21 on."""
    selector = priced()
    first = held(selector, b"k")
    picks = [held(selector, b"k") for _ in range(20)]
    assert {pick.engine for pick in picks} == {first.engine}
    spilled = held(selector, b"k")
    assert spilled.engine != first.engine
    assert spilled.reason == "spill"
    assert spilled.why == "saves 1.1 s"
    for pick in picks:
        pick.release()
    assert held(selector, b"k").engine == first.engine


def test_the_guard_prefers_the_cheapest_and_passes_what_is_shut() -> None:
    engines = [engine(name, inFlightHere=4.0, inFlightAll=4.0) for name in "abcd"]
    models = one_model(
        route("a", 10_000, workShare=0.5),
        route("b", 0, workShare=0.5, reducedCost=0.2),
        route("c", 0, workShare=0.5, reducedCost=0.1),
        route("d", 0, workShare=0.5, reducedCost=30.0),
    )
    selector = make_selector(make_table({}, models=models, engines=engines, guard=GUARD))
    picks = [held(selector, b"k") for _ in range(9)]
    assert {pick.engine_name for pick in picks} == {"a"}
    assert held(selector, b"k").engine_name == "c"
    selector.set_ready("ns/c", "http://c.example:8000", False)
    assert held(selector, b"k").engine_name == "b"


def test_keyless_requests_follow_in_flight_where_enough_is_expected() -> None:
    """nu = 1 from 40 expected on: whoever lacks most of its expected requests is next."""
    engines = [engine("a", inFlightHere=30.0, inFlightAll=30.0), engine("b", inFlightHere=10.0, inFlightAll=10.0)]
    models = one_model(route("a", 7500, workShare=0.01), route("b", 2500, workShare=0.01))
    selector = make_selector(make_table({}, models=models, engines=engines, guard=GUARD))
    busy = [held(selector) for _ in range(40)]
    assert Counter(pick.engine_name for pick in busy) == {"a": pytest.approx(30, abs=2), "b": pytest.approx(10, abs=2)}
    for pick in busy:
        if pick.engine_name == "b":
            pick.release()
    assert [held(selector).engine_name for _ in range(5)] == ["b"] * 5


def test_the_guard_compares_a_bounded_number_of_many_engines() -> None:
    names = [f"e{number}" for number in range(300)]
    engines = [engine(name, inFlightHere=1.0, inFlightAll=1.0) for name in names]
    models = one_model(*(route(name, 33 + (number < 100), workShare=0.5) for number, name in enumerate(names)))
    selector = make_selector(make_table({}, models=models, engines=engines, guard=GUARD))
    hot = Counter(held(selector, b"hot").engine for _ in range(60))
    assert len(hot) > 10
    assert len({held(selector).engine for _ in range(100)}) > 90


def test_a_saving_below_the_slack_moves_nobody() -> None:
    """A costs 1.4 s, B 0.6 s: 0.8 s saved is less than the second that a cached prefix is worth."""
    engines = [engine(name, inFlightHere=4.0, inFlightAll=4.0) for name in "ab"]
    models = one_model(route("a", 10_000, workShare=0.5), route("b", 0, workShare=0.5, reducedCost=0.6))
    selector = make_selector(make_table({}, models=models, engines=engines, guard=GUARD))
    picks = [held(selector, b"k") for _ in range(12)]
    assert {pick.engine_name for pick in picks[:9]} == {"a"}
    costs = [2 * 0.5 * 4 * (n - 6) / 8 for n in range(12)]
    assert [pick.engine_name == "a" for pick in picks] == [cost <= 1.6 for cost in costs]
