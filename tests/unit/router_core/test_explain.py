"""The explanation tells what the selection does, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headrace_router.core import explain as explaining
from headrace_router.core.explain import explain
from headrace_router.core.facts import Outcome, RequestFacts
from headrace_router.core.selection import Selector
from support.router_core import GUARD, KEYS, engine, facts, held, make_selector, make_table, one_model, route


def priced(**fields: Any) -> Selector:
    engines = [engine(name, inFlightHere=2.0, inFlightAll=2.0) for name in "abc"]
    models = one_model(*(route(name, 5000 if name != "c" else 0, workShare=0.5, reducedCost=0.5) for name in "abc"))
    return make_selector(make_table({}, models=models, engines=engines, guard=GUARD, **fields))


@pytest.mark.parametrize("prices", [True, False])
def test_it_tells_what_the_selection_does(prices: bool) -> None:
    selector = priced() if prices else make_selector(make_table())
    kept = []
    for key in [*KEYS[:60], *[None] * 60]:
        told = explain(selector, facts(key), 0.0)
        pick = held(selector, key)
        kept.append(pick)
        assert (told.engine, told.verdict, told.why) == (pick.engine, pick.reason, pick.why)
        assert (told.slot, told.keyed) == ((pick.slot, True) if key else (None, False))


def test_candidates_with_prices() -> None:
    told = explain(priced(), facts(b"k"), 0.0)
    assert told.guard == explaining.GuardRule(rule="prices", x=1.0, z=1.0, nu=0.0)
    assert [c.order for c in told.candidates] == [0, 1, None]
    assert told.candidates[0].engine == told.engine
    spare = told.candidates[2]
    assert (spare.engine, spare.weight, spare.share, spare.cost, spare.expected) == ("ns/c", 0, 0.0, 0.5, 2.0)
    assert spare.reduced_cost == 0.5
    assert spare.bound is None


def test_candidates_without_prices_show_their_bound() -> None:
    told = explain(make_selector(make_table({"a": 10_000, "b": 0})), facts(b"k"), 0.0)
    assert told.guard == explaining.GuardRule(rule="load bound")
    assert told.candidates[0].bound == pytest.approx(3.25)
    assert told.candidates[0].cost is None
    assert told.candidates[1].bound is None


def test_unknown_models_and_needs() -> None:
    selector = make_selector(make_table())
    assert explain(selector, RequestFacts("z"), 0.0).verdict == "model_not_found"
    told = explain(selector, facts(needs=frozenset({"vision"})), 0.0)
    assert told.verdict == "missing_capability"
    assert told.engine is None


def test_shed_draws() -> None:
    shed = [{"priority": "default", "share": 0.5}]
    models = [{"model": "m", "classes": [{"routes": [route("a", 10_000)], "shed": shed}]}]
    selector = make_selector(make_table({"a": 10_000}, models=models))
    told = [explain(selector, facts(key), 0.0) for key in KEYS[:40]]
    assert {t.verdict for t in told} == {"shed", "affinity"}
    for one in told:
        assert one.shed_draw is not None
        assert (one.verdict == "shed") == (one.shed_draw < one.shed_share)
    assert explain(selector, facts(), 0.0).shed_draw is None


def test_states_are_named() -> None:
    engines = [
        engine("full", concurrencyLimit=1),
        {"id": "ns/none", "service": {"name": "s", "namespace": "ns", "port": 1}},
        *(engine(name) for name in ("busy", "gone", "late", "trial", "well")),
    ]
    names = ["busy", "full", "gone", "late", "none", "trial", "well"]
    models = one_model(*(route(name, 1429) for name in names))
    selector = make_selector(make_table({}, models=models, engines=engines, ejection={"consecutive": 1}))
    while "ns/full" not in {name for name, _, count in selector.in_flight() if count}:
        held(selector)
    failing = {"ns/trial": 0.0, "ns/gone": 9.0}
    for number in range(100):
        pick = held(selector, b"%d" % number)
        if pick.engine == "ns/busy":
            selector.report(pick, Outcome.FULL, 9.0, retry_after=100.0)
        elif pick.engine in failing:
            selector.report(pick, Outcome.ENGINE_ERROR, failing[pick.engine])
    selector.set_ready("ns/late", "http://late.example:8000", False)
    states = {c.engine[3:]: c.state for c in explain(selector, facts(b"k"), 10.0).candidates}
    assert states == {
        "busy": "full by its own word",
        "full": "at its limit",
        "gone": "ejected",
        "late": "not ready",
        "none": "no address",
        "trial": "trial due",
        "well": "open",
    }


def test_refusals_and_panic() -> None:
    selector = make_selector(make_table({"a": 10_000}))
    selector.set_ready("ns/a", "http://a.example:8000", False)
    told = explain(selector, facts(b"k"), 0.0)
    assert (told.verdict, told.engine) == ("panic", "ns/a")
    tried = (("ns/a", "http://a.example:8000"),)
    assert explain(selector, facts(b"k", tried=tried), 0.0).verdict == "no_engine_left"


def test_many_candidates_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "MOST_SHOWN", 5)
    weights = {f"e{number}": 1000 for number in range(10)} | {"z": 0}
    told = explain(make_selector(make_table(weights)), facts(b"k"), 0.0)
    assert len(told.candidates) == 5


def test_it_is_json() -> None:
    told = json.loads(msgspec.json.encode(explain(priced(), facts(b"k"), 0.0)))
    assert set(told) >= {"model", "verdict", "why", "engine", "policy", "revision", "slot", "candidates", "guard"}
    assert "inFlight" in told["candidates"][0]
