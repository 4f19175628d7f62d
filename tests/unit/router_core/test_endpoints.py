"""Addresses of an engine that change without a table, as its Service's do."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_api.table import RoutingTable
from headrace_router.core.build_view import build_view
from headrace_router.core.explain import explain
from headrace_router.core.facts import Outcome, RefusalKind
from headrace_router.core.selection import Selector
from support.router_core import KEYS, engine, facts, held, make_selector, make_table, parsed, raw_table, refused, swap

PODS = [f"http://10.0.0.{number}:8000" for number in range(1, 5)]


def of_services(weights: dict[str, int], **fields: Any) -> RoutingTable:
    table = raw_table(weights, **fields)
    table["engines"] = [
        engine(name, service={"name": name, "namespace": "ns", "port": 8000}) | {"urls": []} for name in weights
    ]
    return parsed(table)


@pytest.fixture
def selector() -> Selector:
    made = make_selector(of_services({"a": 10_000}))
    made.set_endpoints("ns/a", PODS)
    return made


def urls(selector: Selector, name: str = "ns/a") -> list[str]:
    return [endpoint.url for endpoint in selector.view.engines[name].endpoints]


def test_endpoints_come_without_a_table() -> None:
    selector = make_selector(of_services({"a": 10_000}))
    assert refused(selector.pick(facts(), 0.0)).kind is RefusalKind.NO_ENGINES
    assert selector.set_endpoints("ns/a", reversed(PODS[:2]))  # type: ignore[arg-type]
    assert urls(selector) == PODS[:2]
    held(selector).release()
    assert not selector.set_endpoints("ns/a", PODS[:2])
    assert not selector.set_endpoints("ns/unknown", PODS)


def test_who_stays_keeps_counts_and_health(selector: Selector) -> None:
    stays, goes = held(selector, KEYS[0]), held(selector, KEYS[0])
    while goes.url == stays.url:
        goes = held(selector)
    ejected = next(e for e in selector.view.engines["ns/a"].endpoints if e.url not in (stays.url, goes.url))
    ejected.ejected, ejected.until = True, 100.0
    selector.install(build_view([of_services({"a": 10_000}, hash="next")], selector.view))
    kept = [stays.endpoint, ejected]
    selector.set_endpoints("ns/a", [stays.url, ejected.url, "http://10.0.0.9:8000"])
    assert [e for e in selector.view.engines["ns/a"].endpoints if e.url != "http://10.0.0.9:8000"] == sorted(
        kept, key=lambda endpoint: endpoint.url
    )
    pool = selector.view.models["m"].pool
    assert (pool.total, pool.out) == (3, 1)


def test_another_pod_at_an_old_address_is_new(selector: Selector) -> None:
    """What the one before it did is not its fault; also with a table between, and where who is there isn't known."""
    at = PODS[0]
    selector.set_endpoints("ns/a", {at: "old", PODS[1]: "other"})
    selector.set_endpoints("ns/a", [])
    selector.set_endpoints("ns/a", {at: "old", PODS[1]: "other"})
    picks = [held(selector, key) for key in KEYS[:8]]
    ours = [pick for pick in picks if pick.url == at]
    assert ours
    for pick in ours * 5:
        selector.report(pick, Outcome.CONNECT_FAILED, 1.0)
    pool = selector.view.models["m"].pool
    assert (ours[0].endpoint.ejected, pool.out) == (True, 1)
    assert not selector.set_endpoints("ns/a", {at: "old", PODS[1]: "other"})
    swap(selector, of_services({"a": 10_000}, hash="next"))
    assert selector.view.engines["ns/a"].endpoints[0] is ours[0].endpoint
    assert selector.set_endpoints("ns/a", {at: "new", PODS[1]: "other"})
    fresh = selector.view.engines["ns/a"].endpoints[0]
    pool = selector.view.models["m"].pool
    assert (fresh.ejected, fresh.in_flight, pool.out, pool.total) == (False, 0, 0, 2)
    for pick in picks:
        selector.report(pick, Outcome.ANSWERED, 2.0)
        pick.release()
    assert (fresh.in_flight, selector.view.engines["ns/a"].state.in_flight, pool.out) == (0, 0, 0)
    assert not selector.set_endpoints("ns/a", [at, PODS[1]])
    view = build_view([of_services({"a": 10_000}, hash="3")], selector.view, endpoints={"ns/a": {at: "newest"}})
    assert view.engines["ns/a"].endpoints[0] is not fresh


def test_requests_on_an_endpoint_that_went_end_there(selector: Selector) -> None:
    """REL-04 https://github.com/vllm-project/production-stack/issues/680: what is in flight ends normally."""
    picks = [held(selector, key) for key in KEYS[:8]]
    selector.set_endpoints("ns/a", [])
    selector.set_endpoints("ns/a", PODS[:1])
    assert selector.view.engines["ns/a"].state.in_flight == 8
    for pick in picks:
        selector.report(pick, Outcome.CONNECT_FAILED, 1.0)
        pick.release()
    state = selector.view.engines["ns/a"].state
    assert (state.in_flight, selector.view.models["m"].pool.in_flight) == (0, 0)
    assert state.endpoints[0].in_flight == 0


def test_without_a_ready_endpoint_the_next_engine_serves_and_explain_says_why() -> None:
    selector = make_selector(of_services({"a": 9_999, "b": 1}))
    selector.set_endpoints("ns/a", PODS[:2])
    selector.set_endpoints("ns/b", PODS[2:])
    selector.set_endpoints("ns/a", [])
    assert {held(selector, key).engine for key in KEYS[:20]} == {"ns/b"}
    told = explain(selector, facts(KEYS[0]), 0.0)
    assert {candidate.engine: candidate.state for candidate in told.candidates} == {
        "ns/a": "no ready endpoint",
        "ns/b": "open",
    }
    selector.set_endpoints("ns/b", [])
    assert refused(selector.pick(facts(), 0.0)).kind is RefusalKind.NO_ENGINES
    selector.set_endpoints("ns/a", PODS[:1])  # the refusal that was kept no longer holds
    assert held(selector).engine == "ns/a"


def test_a_session_keeps_its_pod_and_only_those_of_a_lost_pod_move(selector: Selector) -> None:
    """HAS-02: rendezvous inside an engine. https://github.com/vllm-project/production-stack/issues/8"""

    def homes() -> dict[bytes, str]:
        found = {}
        for key in KEYS:
            pick = held(selector, key)
            pick.release()
            found[key] = pick.url
        return found

    before = homes()
    assert set(before.values()) == set(PODS)
    selector.set_endpoints("ns/a", PODS[1:])
    assert {key for key, url in homes().items() if url != before[key]} == {
        key for key, url in before.items() if url == PODS[0]
    }
    selector.set_endpoints("ns/a", PODS)
    assert homes() == before


def test_a_table_keeps_what_its_services_have(selector: Selector) -> None:
    swap(selector, of_services({"a": 10_000}, hash="next"))
    assert urls(selector) == PODS
    orders = selector.view.engines["ns/a"].orders
    swap(selector, of_services({"a": 10_000}, hash="third"))
    assert selector.view.engines["ns/a"].orders is orders
    elsewhere = raw_table({"a": 10_000})
    elsewhere["engines"] = [engine("a", service={"name": "other", "namespace": "ns", "port": 1}) | {"urls": []}]
    swap(selector, parsed(elsewhere))
    assert urls(selector) == []
    swap(selector, make_table({"a": 10_000}))
    assert urls(selector) == ["http://a.example:8000"]


def test_probes_go_to_the_endpoints_of_now(selector: Selector) -> None:
    assert {probe.url for probe in selector.due_probes(0.0)} == set(PODS)
    selector.set_endpoints("ns/a", [*PODS[:1], "http://10.0.0.9:8000"])
    assert {probe.url for probe in selector.due_probes(1e6)} == {PODS[0], "http://10.0.0.9:8000"}
