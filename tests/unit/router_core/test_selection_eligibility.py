"""Which engines may serve a request: capabilities, context length, prompt class."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace_router.core.facts import RefusalKind
from headrace_router.core.selection import Selector
from support.router_core import (
    KEYS,
    engine,
    facts,
    freely,
    held,
    make_selector,
    make_table,
    one_model,
    refused,
    route,
)


def capable() -> Selector:
    engines = [engine("a", capabilities=["tools"]), engine("b", capabilities=["tools", "vision"]), engine("c")]
    return make_selector(make_table(engines=engines))


def test_needs_filter_engines_and_renormalise() -> None:
    selector = capable()
    tools = frozenset({"tools"})
    counted = Counter(freely(selector, needs=tools) for _ in range(160))
    assert counted == {"a": pytest.approx(100, abs=2), "b": pytest.approx(60, abs=2)}
    assert {freely(selector, key, needs=frozenset({"vision"})) for key in KEYS} == {"b"}


@pytest.mark.parametrize(("needs", "word"), [({"audio"}, "audio"), ({"tools", "audio"}, "audio")])
def test_a_capability_that_nobody_has_is_named(needs: set[str], word: str) -> None:
    found = refused(capable().pick(facts(needs=frozenset(needs)), 0.0))
    assert (found.kind, found.status) == (RefusalKind.CAPABILITY_MISSING, 400)
    assert f"offers {word}," in found.message


def test_capabilities_that_nobody_has_together_are_named() -> None:
    engines = [engine("a", capabilities=["tools"]), engine("b", capabilities=["vision"])]
    selector = make_selector(make_table({"a": 5000, "b": 5000}, engines=engines))
    found = refused(selector.pick(facts(needs=frozenset({"tools", "vision"})), 0.0))
    assert "tools, vision together" in found.message


def test_needs_that_only_spare_engines_meet_are_spread_by_capacity() -> None:
    engines = [
        engine("a"),
        engine("b", capabilities=["vision"], capacityShare=0.75),
        engine("c", capabilities=["vision"], capacityShare=0.25),
        engine("d", capabilities=["vision"]),
    ]
    models = one_model(route("a", 10_000), route("b", 0), route("c", 0), route("d", 0))
    selector = make_selector(make_table({}, models=models, engines=engines))
    counted = Counter(freely(selector, needs=frozenset({"vision"})) for _ in range(100))
    assert counted == {"b": pytest.approx(75, abs=2), "c": pytest.approx(25, abs=2)}


def test_spare_engines_of_unknown_capacity_are_spread_evenly() -> None:
    engines = [engine("a"), engine("b", capabilities=["tools"]), engine("c", capabilities=["tools"])]
    selector = make_selector(make_table({"a": 10_000, "b": 0, "c": 0}, engines=engines))
    assert Counter(freely(selector, needs=frozenset({"tools"})) for _ in range(10)) == {"b": 5, "c": 5}


def long_and_short(**fields: Any) -> Selector:
    engines = [engine("a", maxModelLen=1000), engine("b", maxModelLen=8000), engine("c", maxModelLen=2000)]
    return make_selector(make_table(engines=engines, **fields))


def test_requests_too_long_for_an_engine_skip_it() -> None:
    selector = long_and_short()
    assert {freely(selector, key, body_bytes=4 * 900) for key in KEYS} == {"a", "b", "c"}
    assert {freely(selector, key, body_bytes=4 * 1500) for key in KEYS} == {"b", "c"}
    assert {freely(selector, key, body_bytes=4 * 5000) for key in KEYS} == {"b"}


def test_an_estimate_alone_loses_no_request() -> None:
    selector = long_and_short()
    assert {freely(selector, key, body_bytes=4 * 20_000) for key in KEYS} == {"b"}
    found = refused(selector.pick(facts(body_bytes=4 * 40_000), 0.0))
    assert (found.kind, found.status, found.code) == (RefusalKind.CONTEXT_TOO_LONG, 400, "context_length_exceeded")
    assert "8000" in found.message


def test_an_engine_of_unknown_length_takes_what_is_too_long_for_the_others() -> None:
    engines = [engine("a", maxModelLen=1000), engine("b"), engine("c")]
    selector = make_selector(make_table(engines=engines))
    assert {freely(selector, key, body_bytes=10**7) for key in KEYS} == {"b", "c"}


def test_images_say_nothing_about_length() -> None:
    engines = [engine(name, maxModelLen=1000, capabilities=["vision"]) for name in "abc"]
    selector = make_selector(make_table(engines=engines))
    assert freely(selector, needs=frozenset({"vision"}), body_bytes=10**7) in {"a", "b", "c"}


def test_learned_bytes_per_token_count() -> None:
    models = one_model(route("a", 5000), route("b", 5000), bytesPerToken=2.0)
    engines = [engine("a", maxModelLen=1000), engine("b", maxModelLen=4000)]
    selector = make_selector(make_table({}, models=models, engines=engines))
    assert {freely(selector, key, body_bytes=2 * 1001) for key in KEYS} == {"b"}


def test_prompt_classes_have_weights_of_their_own() -> None:
    classes = [{"routes": [route("a", 10_000)]}, {"routes": [route("b", 10_000)]}, {"routes": [route("c", 10_000)]}]
    table = make_table(classEdges=[600, 1500], models=[{"model": "m", "classes": classes}])
    selector = make_selector(table)
    for size, name, number in ((599, "a", 0), (600, "b", 1), (1499, "b", 1), (1500, "c", 2), (10**6, "c", 2)):
        pick = held(selector, body_bytes=4 * size)
        assert (pick.engine_name, pick.prompt_class) == (name, number)
        assert selector.view.models["m"].class_of(4 * size) == number


def test_one_class_ignores_the_edges() -> None:
    selector = make_selector(make_table(classEdges=[600]))
    assert held(selector, body_bytes=10**6).prompt_class == 0


def test_served_names_are_the_engines_own() -> None:
    engines = [engine("a", models=[{"model": "m", "servedName": "org/M"}, {"model": "x", "servedName": "y"}])]
    selector = make_selector(make_table({"a": 10_000}, engines=engines))
    assert held(selector).served_name == "org/M"
    assert held(selector).config.models[0].served_name == "org/M"
