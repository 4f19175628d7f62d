"""A fleet that takes nothing more: one lot a request, fast refusals that end when something changes, calm panic."""

from __future__ import annotations

import pytest

from headrace_router.core.facts import Outcome, RefusalKind
from headrace_router.core.selection import Selector
from support.router_core import (
    engine,
    facts,
    freely,
    held,
    make_selector,
    make_table,
    one_model,
    picked,
    refused,
    route,
)


def full_fleet(**fields: object) -> Selector:
    """a and b with one place each."""
    engines = [engine("a", concurrencyLimit=1), engine("b", concurrencyLimit=1)]
    return make_selector(make_table({"a": 5000, "b": 5000}, engines=engines, **fields))


def test_a_request_that_waits_or_is_tried_again_draws_no_second_lot() -> None:
    """protection.md, Load shedding: the share of requests that is shed is the table's, however often one is looked at
    while it waits in the queue."""
    shed = {"shed": [{"priority": "default", "share": 0.5}]}
    models = one_model(route("a", 10_000))
    models[0]["classes"][0] |= shed
    lots = iter([0.9, 0.1])
    selector = make_selector(
        make_table({}, models=models, engines=[engine("a", concurrencyLimit=1)]), rng=lambda: next(lots)
    )
    first = facts()
    taken = picked(selector.pick(first, 0.0))
    assert refused(selector.pick(facts(), 0.0)).kind is RefusalKind.SHED
    for _ in range(5):
        assert refused(selector.pick(first, 0.0)).kind is RefusalKind.FULL
    taken.release()
    assert picked(selector.pick(first, 0.0)).engine_name == "a"


def test_a_refusal_holds_until_a_place_is_given_back() -> None:
    selector = full_fleet()
    taken, _ = held(selector), held(selector, b"k")
    kept = refused(selector.pick(facts(), 0.0))
    assert selector.pick(facts(b"other"), 1.0) is kept, "no engine is looked at again"
    taken.release()
    assert held(selector).engine_name == taken.engine_name
    assert refused(selector.pick(facts(), 1.0)).kind is RefusalKind.FULL


def test_a_refusal_ends_when_an_engines_own_time_is_up() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    for seconds in (3.0, 7.0):
        pick = held(selector)
        selector.report(pick, Outcome.FULL, 0.0, retry_after=seconds)
        pick.release()
    assert refused(selector.pick(facts(), 2.9)).retry_after == 1
    assert picked(selector.pick(facts(), 3.0))


def test_a_refusal_ends_when_a_probe_finds_an_engine_ready() -> None:
    selector = full_fleet()
    selector.set_ready("ns/b", "http://b.example:8000", False)
    assert held(selector).engine_name == "a"
    assert refused(selector.pick(facts(), 0.0)).kind is RefusalKind.FULL
    selector.set_ready("ns/b", "http://b.example:8000", True)
    assert held(selector).engine_name == "b"


def test_retries_neither_keep_nor_believe_a_refusal() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    tried = (("ns/a", "http://a.example:8000"), ("ns/b", "http://b.example:8000"))
    assert refused(selector.pick(facts(tried=tried), 0.0)).kind is RefusalKind.NONE_LEFT
    assert picked(selector.pick(facts(), 0.0))


@pytest.mark.parametrize("rate", [1, 400])
def test_panic_neither_lengthens_ejections_nor_reports_them_anew(rate: int) -> None:
    """Each report that says "ejected" is a line in the log: none at the rate of requests, and no engine is kept away
    for minutes because it was asked often while nothing else was left."""
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    for _ in range(20):
        pick = held(selector)
        selector.report(pick, Outcome.CONNECT_FAILED if pick.engine_name == "a" else Outcome.ANSWERED, 0.0)
        pick.release()
    (ejection,) = selector.ejected(0.0)
    for name in ("a", "b"):
        selector.set_ready(f"ns/{name}", f"http://{name}.example:8000", False)
    said = []
    for _ in range(rate):
        pick = held(selector)
        said.append(selector.report(pick, Outcome.CONNECT_FAILED, 0.0))
        pick.release()
    assert not any(said)
    assert selector.ejected(0.0) == [ejection]
    assert {freely(selector) for _ in range(4)} == {"a", "b"}, "panic spreads"
