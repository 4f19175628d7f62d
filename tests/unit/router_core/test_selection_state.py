"""Counts and health over swaps, and the probes."""

from __future__ import annotations

from inspect import isgetsetdescriptor, ismemberdescriptor

from headrace_router.core.facts import Outcome, RefusalKind, RequestFacts
from headrace_router.core.selection import Selector
from support.router_core import (
    KEYS,
    engine,
    facts,
    held,
    make_selector,
    make_table,
    parsed,
    picked,
    raw_table,
    refused,
    route,
    swap,
)


def test_release_is_idempotent_and_counts_end_at_zero() -> None:
    """HAS-04: never negative, whatever is released twice. https://github.com/kubeai-project/kubeai/issues/447"""
    selector = make_selector(make_table())
    picks = [held(selector, key) for key in KEYS]
    assert sum(count for _, _, count in selector.in_flight()) == len(KEYS)
    for pick in picks * 2:
        pick.release()
    assert {count for _, _, count in selector.in_flight()} == {0}


def test_an_engine_that_comes_back_starts_at_zero() -> None:
    """HAS-04: 50 streams run while B is dropped and brought back; late ends count for nobody.

    https://github.com/skypilot-org/skypilot/issues/10444
    """
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    picks = [held(selector) for _ in range(50)]
    before = {name: count for name, _, count in selector.in_flight()}
    swap(selector, make_table({"a": 10_000}))
    swap(selector, make_table({"a": 5000, "b": 5000}))
    assert {name: count for name, _, count in selector.in_flight()} == {"ns/a": before["ns/a"], "ns/b": 0}
    later = [held(selector) for _ in range(10)]
    for pick in picks + later:
        pick.release()
    assert {count for _, _, count in selector.in_flight()} == {0}
    assert selector.view.models["m"].pool.in_flight == 0


def test_an_address_that_is_used_again_inherits_nothing() -> None:
    """STA-04: the same url under another id has no in-flight, penalties or affinity of the old engine.

    https://github.com/kubernetes/kubernetes/issues/109414
    """
    url = {"urls": ["http://10.0.0.1:9001"]}
    old = make_table({"a": 10_000}, engines=[engine("a") | url])
    new = make_table(
        {"z": 10_000},
        engines=[engine("z") | url],
        models=[{"model": "m2", "classes": [{"routes": [route("z", 10_000)]}]}],
    )
    selector = make_selector(old)
    pick = held(selector, b"s1")
    selector.report(pick, Outcome.FULL, 0.0, retry_after=100.0)
    swap(selector, new)
    assert refused(selector.pick(facts(b"s1"), 1.0)).kind is RefusalKind.MODEL_NOT_FOUND
    other = picked(selector.pick(RequestFacts("m2", b"s1"), 1.0))
    assert (other.engine, other.url) != (pick.engine, pick.url)
    assert list(selector.in_flight()) == [("ns/z", "http://10.0.0.1:9001", 1)]
    selector.report(pick, Outcome.CONNECT_FAILED, 1.0)
    pick.release()
    assert list(selector.in_flight()) == [("ns/z", "http://10.0.0.1:9001", 1)]
    assert selector.ejected(1.0) == []


def test_endpoints_that_stay_keep_their_health_over_a_swap() -> None:
    selector = make_selector(make_table({"a": 5000, "b": 5000}))
    pick = held(selector, b"k")
    selector.report(pick, Outcome.FULL, 0.0, retry_after=60.0)
    swap(selector, make_table({"a": 4000, "b": 6000}))
    assert picked(selector.pick(facts(b"k"), 1.0)).engine != pick.engine


def test_headers_play_no_part() -> None:
    """SEC-02: facts hold what selection reads; there is no field by which a client could name an engine.

    https://github.com/agentgateway/agentgateway/pull/3144
    """
    known = {"model", "key", "body_bytes", "stream", "needs", "priority", "tried", "admitted"}
    # Compiled classes have no __slots__; their fields are descriptors of another kind.
    fields = {name for name, at in vars(RequestFacts).items() if ismemberdescriptor(at) or isgetsetdescriptor(at)}
    assert fields == known
    assert not hasattr(facts(), "__dict__")


def test_probes_trickle_to_what_no_request_reaches() -> None:
    selector = make_selector(make_table({"a": 0, "b": 5000, "c": 5000}))
    assert {probe.engine for probe in selector.due_probes(0.0)} == {"ns/a", "ns/b", "ns/c"}
    assert selector.due_probes(1.0) == []
    assert [probe.engine for probe in selector.due_probes(6.0)] == ["ns/a"]
    pick = held(selector)
    assert {probe.engine for probe in selector.due_probes(40.0)} == {"ns/a", "ns/b", "ns/c"} - {pick.engine}
    selector.set_ready(pick.engine, pick.url, False)
    assert pick.engine in {probe.engine for probe in selector.due_probes(46.0)}


def test_probes_are_a_few_at_a_time() -> None:
    selector = make_selector(make_table({f"e{number}": 100 for number in range(100)}))
    seen = [probe for second in range(13) for probe in selector.due_probes(float(second), limit=8)]
    assert len({probe.engine for probe in seen}) == len(seen) == 100
    assert Selector(None, rng=lambda: 0.0).due_probes(0.0) == []


def test_two_policies_share_an_engine_and_its_counts() -> None:
    first = make_table({"a": 10_000}, engines=[engine("a", concurrencyLimit=3, inFlightHere=5.0)])
    other = raw_table({"a": 10_000}, policy="batch", engines=[engine("a", concurrencyLimit=9, inFlightHere=2.0)])
    other["models"][0]["model"] = "n"
    selector = make_selector(first, parsed(other))
    view = selector.view.engines["ns/a"]
    assert (view.limit, view.in_flight_here) == (3, 7.0)
    for model in ("m", "n", "n"):
        picked(selector.pick(RequestFacts(model), 0.0))
    assert refused(selector.pick(RequestFacts("m"), 0.0)).kind is RefusalKind.FULL
