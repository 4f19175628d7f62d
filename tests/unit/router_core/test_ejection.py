"""Ejection, trials and full engines."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_router.core.facts import Outcome, RefusalKind
from headrace_router.core.selection import Pick, Selector
from support.router_core import engine, facts, held, make_selector, make_table, picked, refused, swap

FAILED = Outcome.ENGINE_ERROR


def fleet(names: str = "abc", **ejection: Any) -> Selector:
    weight = 10_000 // len(names)
    limits = {"consecutive": 3, "base": 10.0, "max": 60.0, "maxPercent": 67} | ejection
    engines = [engine(name, concurrencyLimit=400) for name in names]  # a load bound of 100: no spill gets in the way
    return make_selector(make_table(dict.fromkeys(names, weight), engines=engines, ejection=limits))


def attempt_on(selector: Selector, name: str, now: float) -> Pick:
    """A pick of that engine, whatever key it takes."""
    for number in range(2000):
        pick = selector.pick(facts(b"key %d" % number), now)
        if isinstance(pick, Pick):
            if pick.engine_name == name:
                return pick
            pick.release()
    raise AssertionError(f"no request reaches {name}")


def fails(selector: Selector, name: str, now: float = 0.0, outcome: Outcome = FAILED, times: int = 3) -> list[bool]:
    found = []
    for _ in range(times):
        pick = attempt_on(selector, name, now)
        found.append(selector.report(pick, outcome, now))
        pick.release()
        if found[-1]:
            break
    return found


def out(selector: Selector, now: float = 0.0) -> set[str]:
    return {name.removeprefix("ns/") for name, _, _ in selector.ejected(now)}


def reached(selector: Selector, now: float) -> set[str]:
    names = set()
    for number in range(200):
        pick = picked(selector.pick(facts(b"key %d" % number), now))
        pick.release()
        names.add(pick.engine_name)
    return names


@pytest.mark.parametrize("outcome", [Outcome.ENGINE_ERROR, Outcome.CONNECT_FAILED])
def test_consecutive_failures_eject(outcome: Outcome) -> None:
    selector = fleet()
    assert fails(selector, "a", outcome=outcome) == [False, False, True]
    assert reached(selector, 1.0) == {"b", "c"}
    assert selector.ejected(1.0) == [("ns/a", "http://a.example:8000", 9.0)]


def test_the_limit_is_checked_for_the_state_after_the_ejection() -> None:
    """WEI-05 a: three engines at 67 %: at most two go. https://github.com/envoyproxy/envoy/issues/27066"""
    selector = fleet()
    for name in "abc":
        fails(selector, name)
    assert len(out(selector)) == 2
    fails(selector, "c", times=10)
    assert out(selector) == {"a", "b"}


def test_the_only_engine_is_never_ejected() -> None:
    """WEI-05 b: its own 500 is passed on. https://github.com/envoyproxy/envoy/issues/1491"""
    selector = fleet("a", maxPercent=100, minHealthy=0)
    assert not any(fails(selector, "a", times=20))
    assert held(selector).engine_name == "a"


@pytest.mark.parametrize(("limits", "most"), [({"maxPercent": 30}, 1), ({"minHealthy": 3, "maxPercent": 100}, 1)])
def test_shares_and_minimum_bound_ejections(limits: dict[str, int], most: int) -> None:
    selector = fleet("abcd", **limits)
    for name in "abcd":
        fails(selector, name, times=6)
    assert len(out(selector)) == most


def test_a_trial_decides_and_the_time_doubles() -> None:
    """WEI-05 c: after the time A gets one trial, and is out longer each time. https://github.com/envoyproxy/envoy/issues/2671"""
    selector = fleet()
    fails(selector, "a")
    now = 0.0
    for wait in (10.0, 20.0, 40.0, 60.0, 60.0):
        assert "a" not in reached(selector, now + wait - 0.1)
        now += wait
        trial = attempt_on(selector, "a", now)
        assert trial.trial
        assert "a" not in reached(selector, now)  # one at a time
        assert selector.report(trial, FAILED, now)
        trial.release()
    trial = attempt_on(selector, "a", now + 60.0)
    assert not selector.report(trial, Outcome.ANSWERED, now + 60.0)
    trial.release()
    assert out(selector) == set()
    assert "a" in reached(selector, now + 60.0)


def test_a_trial_that_ends_without_a_word_gives_way_to_the_next() -> None:
    selector = fleet()
    fails(selector, "a")
    trial = attempt_on(selector, "a", 10.0)
    selector.report(trial, Outcome.CANCELLED, 10.0)
    assert "a" not in reached(selector, 10.0)
    trial.release()
    assert attempt_on(selector, "a", 10.0).trial


def test_the_rest_is_renormalised() -> None:
    """WEI-05 d: A with 0.8 of the weight is out; B and C serve all. https://github.com/istio/istio/issues/20135"""
    limits = {"consecutive": 1, "maxPercent": 50}
    selector = make_selector(make_table({"a": 8000, "b": 1000, "c": 1000}, ejection=limits))
    fails(selector, "a", times=1)
    assert reached(selector, 1.0) == {"b", "c"}
    names = [held(selector).engine_name for _ in range(40)]
    assert 15 <= names.count("b") <= 25


def test_success_between_failures_counts_anew() -> None:
    selector = fleet()
    for _ in range(5):
        fails(selector, "a", times=2)
        fails(selector, "a", outcome=Outcome.ANSWERED, times=1)
    assert out(selector) == set()


def test_a_long_time_of_health_forgives() -> None:
    selector = fleet()
    fails(selector, "a")
    trial = attempt_on(selector, "a", 10.0)
    selector.report(trial, Outcome.ANSWERED, 10.0)
    trial.release()
    fails(selector, "a", now=30.0)
    assert selector.ejected(30.0)[0][2] == 20.0
    trial = attempt_on(selector, "a", 50.0)
    selector.report(trial, Outcome.ANSWERED, 50.0)
    trial.release()
    fails(selector, "a", now=200.0)
    assert selector.ejected(200.0)[0][2] == 10.0


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.REUSED_CLOSED, Outcome.FULL, Outcome.ANSWERED])
def test_what_says_nothing_against_an_engine(outcome: Outcome) -> None:
    """RET-01: a close on a kept connection does not by itself eject. https://github.com/aio-libs/aiohttp/issues/6138"""
    selector = fleet()
    for _ in range(20):
        pick = held(selector)
        assert not selector.report(pick, outcome, 0.0, retry_after=0.0)
        pick.release()
    assert out(selector) == set()
    assert reached(selector, 0.0) == {"a", "b", "c"}


@pytest.mark.parametrize("consecutive", [1, 3])
def test_time_outs_of_one_key_are_not_the_engines_fault(consecutive: int) -> None:
    selector = fleet(consecutive=consecutive)
    pick = attempt_on(selector, "a", 0.0)
    for _ in range(200):
        assert not selector.report(pick, Outcome.TIMED_OUT, 0.0)


def test_time_outs_of_three_keys_are() -> None:
    selector = fleet("ab", maxPercent=50)
    found: dict[int, Pick] = {}
    for number in range(100):
        pick = picked(selector.pick(facts(b"key %d" % number), 0.0))
        if pick.engine_name == "a":
            found[pick.slot] = pick
    reports = [selector.report(pick, Outcome.TIMED_OUT, 0.0) for pick in list(found.values())[:3]]
    assert reports == [False, False, True]


def test_keyless_time_outs_are_told_apart_by_size() -> None:
    selector = fleet("ab", maxPercent=50, consecutive=3)
    same = [held(selector, body_bytes=100) for _ in range(8)]
    assert not any(selector.report(pick, Outcome.TIMED_OUT, 0.0) for pick in same)
    other = [held(selector, body_bytes=100 + number) for number in range(8)]
    assert any(selector.report(pick, Outcome.TIMED_OUT, 0.0) for pick in other)


def test_remembered_late_keys_are_bounded() -> None:
    selector = fleet("ab", consecutive=1000)
    for number in range(500):
        selector.report(held(selector, body_bytes=number), Outcome.TIMED_OUT, 0.0)
    sizes = [len(e.late or ()) for engine_view in selector.view.engines.values() for e in engine_view.endpoints]
    assert max(sizes) == 64


def test_what_began_before_an_ejection_says_nothing_after_it() -> None:
    selector = fleet()
    early = [attempt_on(selector, "a", 0.0) for _ in range(6)]
    assert [selector.report(pick, FAILED, 0.0) for pick in early] == [False, False, True, False, False, False]
    assert selector.ejected(0.0)[0][2] == 10.0
    selector.report(early[0], Outcome.ANSWERED, 0.0)
    assert out(selector) == {"a"}


def test_replicas_are_ejected_one_by_one() -> None:
    urls = ["http://r0", "http://r1"]
    table = make_table({"a": 10_000}, engines=[engine("a") | {"urls": urls}], ejection={"consecutive": 1})
    selector = make_selector(table)
    bad = held(selector, b"k")
    assert selector.report(bad, FAILED, 0.0)
    bad.release()
    assert {held(selector, b"k%d" % number).url for number in range(20)} == set(urls) - {bad.url}
    assert picked(selector.pick(facts(b"k"), 5.0)).trial


def test_a_swap_keeps_ejections_and_their_count() -> None:
    selector = fleet()
    fails(selector, "a")
    swap(selector, make_table(dict.fromkeys("abc", 3333), ejection={"consecutive": 3, "maxPercent": 50}))
    fails(selector, "b", times=6)
    assert out(selector) == {"a"}


def test_an_endpoint_that_left_its_engine_counts_nowhere() -> None:
    limits = {"consecutive": 1, "maxPercent": 50}
    two = [engine("a") | {"urls": ["http://r0", "http://r1", "http://r2"]}]
    selector = make_selector(make_table({"a": 10_000}, engines=two, ejection=limits))
    picks = {pick.url: pick for pick in (held(selector, b"k%d" % number) for number in range(60))}
    one = [engine("a") | {"urls": ["http://r1", "http://r2"]}]
    swap(selector, make_table({"a": 10_000}, engines=one, ejection=limits))
    selector.report(picks["http://r0"], FAILED, 0.0)
    assert selector.view.models["m"].pool.out == 0
    assert selector.report(picks["http://r1"], FAILED, 0.0)


def test_full_engines_wait_for_the_longer_of_two_words() -> None:
    """RET-05: 429 with Retry-After 1, then 503 without (default 60 s): at t = 2 A is still penalised, and a request is
    served elsewhere at once. https://github.com/BerriAI/litellm/issues/20722
    """
    selector = make_selector(make_table({"a": 5000, "b": 5000}), default_full=60.0)
    first, second = held(selector, b"k"), held(selector, b"k")
    selector.report(first, Outcome.FULL, 0.0, retry_after=1.0)
    selector.report(second, Outcome.FULL, 0.05)
    assert picked(selector.pick(facts(b"k"), 2.0)).engine != first.engine
    selector.report(first, Outcome.FULL, 3.0, retry_after=1.0)
    assert picked(selector.pick(facts(b"k"), 50.0)).engine != first.engine
    assert picked(selector.pick(facts(b"k"), 60.1)).engine == first.engine


@pytest.mark.parametrize(("asked", "until"), [(0.0, 0.0), (None, 7.0), (99_999_999.0, 300.0)])
def test_what_an_engine_may_ask_for(asked: float | None, until: float) -> None:
    """RET-05: 0 is no wait and not the default; nothing is the default; too much is capped by the policy.

    https://github.com/BerriAI/litellm/issues/34399
    """
    selector = make_selector(make_table({"a": 10_000}), default_full=7.0)
    pick = held(selector)
    selector.report(pick, Outcome.FULL, 0.0, retry_after=asked)
    if until:
        assert refused(selector.pick(facts(), until - 0.5)).kind is RefusalKind.ALL_PENALISED
    assert picked(selector.pick(facts(), until)).engine == pick.engine


def test_a_full_answer_ends_an_ejection() -> None:
    selector = fleet()
    fails(selector, "a")
    trial = attempt_on(selector, "a", 10.0)
    selector.report(trial, Outcome.FULL, 10.0, retry_after=0.0)
    trial.release()
    assert out(selector) == set()


def test_panic_uses_what_is_left_though_ejected() -> None:
    """WEI-05: when nothing is left, all rather than none; here a swap takes the last healthy one away."""
    selector = fleet("ab", maxPercent=50)
    fails(selector, "a")
    swap(selector, make_table({"a": 10_000}))
    pick = held(selector)
    assert pick.engine_name == "a"
    assert not pick.trial
    selector.report(pick, Outcome.ANSWERED, 0.0)
    assert out(selector) == set()
