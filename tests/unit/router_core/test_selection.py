"""From a request's facts to a pick or a refusal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace_router.core.facts import Outcome, Refusal, RefusalKind, RequestFacts
from headrace_router.core.selection import Pick, Selector
from support.router_core import (
    GUARD,
    KEYS,
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


def test_a_key_stays_with_its_engine() -> None:
    selector = make_selector(make_table())
    first = {key: freely(selector, key) for key in KEYS}
    assert {key: freely(selector, key) for key in KEYS} == first
    again = make_selector(make_table({"c": 2000, "a": 5000, "b": 3000}))
    assert {key: freely(again, key) for key in KEYS} == first
    assert set(first.values()) == {"a", "b", "c"}


def test_reasons() -> None:
    selector = make_selector(make_table())
    keyed, keyless = held(selector, b"k"), held(selector)
    assert (keyed.reason, keyless.reason) == ("affinity", "weighted")
    assert keyed.why == "first engine of its key"
    assert keyless.why == "its turn by weight"
    retry = held(selector, b"k", tried=((keyed.engine, keyed.url),))
    assert (retry.reason, retry.why) == ("retry", "another engine after a failed attempt")
    assert retry.engine != keyed.engine
    assert keyed.revision == "1"
    assert keyed.served_name is None
    assert keyed.policy is selector.view.policy_for("m")
    assert not keyed.trial


def test_keyless_requests_follow_weights_at_concurrency_one() -> None:
    """HAS-05: without a key no engine is a constant choice. https://github.com/BerriAI/litellm/issues/34766"""
    selector = make_selector(make_table())
    counted = Counter(freely(selector) for _ in range(300))
    assert counted == {"a": pytest.approx(150, abs=2), "b": pytest.approx(90, abs=2), "c": pytest.approx(60, abs=2)}


@pytest.mark.parametrize("priced", [True, False])
def test_weight_zero_gets_no_request_while_others_can(priced: bool) -> None:
    """WEI-02: 0 is drained, not "not set". https://github.com/emissary-ingress/emissary/issues/1379"""
    fields = {"guard": GUARD} if priced else {}
    models = one_model(route("a", 0, reducedCost=5.0), route("b", 10_000))
    selector = make_selector(make_table({"a": 0, "b": 10_000}, models=models, **fields))
    assert {freely(selector, key) for key in [*KEYS, *[None] * 100]} == {"b"}


@pytest.mark.parametrize("priced", [True, False])
def test_weight_zero_serves_when_nothing_else_is_left(priced: bool) -> None:
    fields = {"guard": GUARD} if priced else {}
    selector = make_selector(make_table({"a": 0, "b": 10_000, "c": 0}, **fields))
    selector.set_ready("ns/b", "http://b.example:8000", False)
    assert held(selector, b"k").engine_name == "a"
    assert held(selector, b"k").reason == "spill"
    assert freely(selector) in {"a", "c"}
    selector.set_ready("ns/b", "http://b.example:8000", True)
    assert freely(selector, b"k") == "b"


def test_unready_and_unknown_words_of_probes() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    selector.set_ready("ns/z", "http://z", False)
    selector.set_ready("ns/a", "http://other", False)
    assert {freely(selector, key) for key in KEYS} == {"a", "b"}
    selector.set_ready("ns/a", "http://a.example:8000", False)
    assert {freely(selector, key) for key in KEYS} == {"b"}
    assert {freely(selector) for _ in range(10)} == {"b"}


def test_with_every_engine_unready_any_is_better_than_none() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    for name in "ab":
        selector.set_ready(f"ns/{name}", f"http://{name}.example:8000", False)
    assert {freely(selector, key) for key in KEYS} == {"a", "b"}
    assert freely(selector) in {"a", "b"}
    assert held(selector, KEYS[0]).why == "first engine takes nothing now"


def test_unknown_model() -> None:
    found = refused(make_selector(make_table()).pick(RequestFacts("other"), 0.0))
    assert (found.kind, found.status, found.code) == (RefusalKind.MODEL_NOT_FOUND, 404, "model_not_found")
    assert refused(Selector(None, rng=lambda: 0.0).pick(facts(), 0.0)).kind is RefusalKind.MODEL_NOT_FOUND
    assert "MODEL_NOT_FOUND" in repr(found)
    assert not found.queue
    assert not found.should_retry


def test_limits_are_kept_and_then_requests_wait() -> None:
    """SCA-04: at every limit the answer is 429 with a whole Retry-After, after the queue.

    https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/1082
    """
    engines = [engine("a", concurrencyLimit=2), engine("b", concurrencyLimit=2)]
    selector = make_selector(make_table({"a": 5000, "b": 5000}, engines=engines))
    picks = [held(selector, b"k") for _ in range(4)]
    assert Counter(pick.engine_name for pick in picks) == {"a": 2, "b": 2}
    found = refused(selector.pick(facts(b"k"), 0.0))
    assert (found.kind, found.status, found.retry_after, found.queue) == (RefusalKind.FULL, 429, 1, True)
    picks[0].release()
    assert held(selector, b"other").engine == picks[0].engine


def test_no_address_is_another_answer_than_full() -> None:
    """SCA-04: no engines is 503 with another code. https://github.com/ray-project/ray/pull/65193"""
    engines = [{"id": "ns/a", "service": {"name": "s", "namespace": "ns", "port": 80}}]
    found = refused(make_selector(make_table({"a": 10_000}, engines=engines)).pick(facts(), 0.0))
    assert (found.kind, found.status, found.code) == (RefusalKind.NO_ENGINES, 503, "no_engine")
    assert found.should_retry


def test_all_penalised_says_how_long() -> None:
    """SCA-04: every engine asked to wait until t + 17: 503 with Retry-After about 17.

    https://github.com/BerriAI/litellm/issues/27823
    """
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    first = held(selector, b"k")
    selector.report(first, Outcome.FULL, 100.0, retry_after=30.0)
    second = picked(selector.pick(facts(b"k"), 100.0))
    assert second.engine != first.engine
    selector.report(second, Outcome.FULL, 100.0, retry_after=17.0)
    found = refused(selector.pick(facts(b"k"), 100.5))
    assert (found.kind, found.status, found.retry_after) == (RefusalKind.ALL_PENALISED, 503, 17)
    assert picked(selector.pick(facts(b"k"), 117.1)).engine == second.engine


def test_when_all_were_tried_none_is_left() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    tried = tuple((f"ns/{name}", f"http://{name}.example:8000") for name in "ab")
    found = refused(selector.pick(facts(b"k", tried=tried), 0.0))
    assert (found.kind, found.status) == (RefusalKind.NONE_LEFT, 503)


def test_retries_go_through_the_slots_order() -> None:
    selector = make_selector(make_table())
    order, tried = [], ()
    for _ in range(3):
        pick = held(selector, b"k", tried=tried)
        order.append(pick.engine)
        tried += ((pick.engine, pick.url),)
    slot_order = selector.view.models["m"].classes[0].everyone.orders
    assert order == [slot_order.ids[index] for index in slot_order.order(pick.slot)]


def test_keyless_retries_avoid_what_was_tried() -> None:
    selector = make_selector(make_table({"a": 9999, "b": 1}))
    for _ in range(20):
        assert freely(selector, tried=(("ns/a", "http://a.example:8000"),)) == "b"


def replicas() -> Selector:
    urls = [f"http://r{number}.example" for number in range(4)]
    return make_selector(make_table({"a": 10_000}, engines=[engine("a") | {"urls": urls}]))


def test_replicas_of_an_engine_are_chosen_alike() -> None:
    selector = replicas()
    urls = Counter()
    for key in KEYS:
        pick = held(selector, key)
        pick.release()
        urls[pick.url] += 1
        assert held(make_selector(*[policy.table for policy in selector.view.policies]), key).url == pick.url
    assert len(urls) == 4
    keyless = Counter()
    for _ in range(40):
        pick = held(selector)
        pick.release()
        keyless[pick.url] += 1
    assert set(keyless.values()) == {10}


def test_a_hot_key_spreads_over_replicas_within_their_bound() -> None:
    selector = replicas()
    urls = Counter(held(selector, b"hot").url for _ in range(40))
    assert len(urls) == 3
    assert max(urls.values()) <= 1.25 * 10 + 2 * 10**0.5


def test_replicas_out_of_rotation_are_left_out() -> None:
    selector = replicas()
    selector.set_ready("ns/a", "http://r1.example", False)
    assert "http://r1.example" not in {held(selector, key).url for key in KEYS}


def test_another_replica_is_tried_when_no_engine_is_left() -> None:
    selector = replicas()
    seen: tuple[tuple[str, str], ...] = ()
    for _ in range(4):
        pick = held(selector, b"k", tried=seen)
        assert (pick.engine, pick.url) not in seen
        pick.release()
        seen += ((pick.engine, pick.url),)
    assert refused(selector.pick(facts(b"k", tried=seen), 0.0)).kind is RefusalKind.NONE_LEFT


def shedding(share: float, **fields: Any) -> Selector:
    classes = [{"routes": [route("a", 10_000)], "shed": [{"priority": "batch", "share": share}]}]
    priorities = [{"name": "interactive", "value": 100}, {"name": "batch", "value": 10}]
    table = make_table({"a": 10_000}, models=[{"model": "m", "classes": classes}], priorities=priorities)
    return make_selector(table, **fields)


def test_the_tables_share_of_a_priority_is_refused() -> None:
    selector = shedding(0.3)
    found = [selector.pick(facts(key, priority="batch"), 0.0) for key in KEYS]
    refusals = [answer for answer in found if isinstance(answer, Refusal)]
    assert len(refusals) / len(KEYS) == pytest.approx(0.3, abs=0.07)
    first = refusals[0]
    assert (first.kind, first.status, first.retry_after, first.should_retry) == (RefusalKind.SHED, 429, 5, False)
    assert "30%" in first.message
    assert all(isinstance(selector.pick(facts(key, priority="interactive"), 0.0), Pick) for key in KEYS)
    assert selector.view.policies[0].sheds


def test_unknown_and_missing_priorities_count_as_the_lowest() -> None:
    selector = shedding(1.0)
    for priority in ("", "batch", "urgent"):
        assert refused(selector.pick(facts(priority=priority), 0.0)).kind is RefusalKind.SHED


def test_attempts_after_the_first_are_not_drawn_again() -> None:
    selector = shedding(1.0)
    found = refused(selector.pick(facts(priority="batch", tried=(("ns/a", "http://a.example:8000"),)), 0.0))
    assert found.kind is RefusalKind.NONE_LEFT


def test_requests_without_a_key_are_drawn_one_by_one() -> None:
    draws = iter([0.1, 0.9])
    selector = shedding(0.5, rng=lambda: next(draws))
    assert refused(selector.pick(facts(priority="batch"), 0.0)).kind is RefusalKind.SHED
    assert isinstance(selector.pick(facts(priority="batch"), 0.0), Pick)


def test_shed_requests_touch_nothing() -> None:
    """SCA-04: no engine, penalty or count knows of them. https://github.com/BerriAI/litellm/issues/4695"""
    selector = shedding(1.0)
    for key in KEYS:
        refused(selector.pick(facts(key, priority="batch"), 0.0))
    assert [count for _, _, count in selector.in_flight()] == [0]
    assert selector.ejected(0.0) == []


def test_a_free_engine_is_found_behind_a_heavy_one() -> None:
    """SCA-04: with 99 % of the weight full, the rest serves; nobody is told to wait while an engine is free."""
    selector = make_selector(make_table({"a": 9900, "b": 100}))
    pick = held(selector)
    while pick.engine_name != "a":
        pick = held(selector)
    selector.report(pick, Outcome.FULL, 0.0, retry_after=60.0)
    assert [freely(selector) for _ in range(20)] == ["b"] * 20


def test_keyless_requests_find_the_only_open_replica() -> None:
    selector = replicas()
    for number in range(3):
        selector.set_ready("ns/a", f"http://r{number}.example", False)
    assert {held(selector).url for _ in range(20)} == {"http://r3.example"}
