"""Tables merged into a view, and what a swap keeps."""

from __future__ import annotations

import gc
from typing import Any

from headrace_api.table import RoutingTable
from headrace_router.core.build_view import build_view
from headrace_router.core.facts import RequestFacts
from headrace_router.core.view import TableView
from support.router_core import (
    engine,
    facts,
    freely,
    held,
    make_selector,
    make_table,
    parsed,
    picked,
    raw_table,
    route,
    swap,
)


def of_model(name: str, policy: str, weights: dict[str, int], **fields: Any) -> RoutingTable:
    table = raw_table(weights, policy=policy, **fields)
    table["models"][0]["model"] = name
    return parsed(table)


def test_policies_are_merged_by_model() -> None:
    selector = make_selector(of_model("m", "chat", {"a": 10_000}), of_model("n", "code", {"b": 10_000}))
    assert picked(selector.pick(RequestFacts("m"), 0.0)).engine_name == "a"
    assert picked(selector.pick(RequestFacts("n"), 0.0)).engine_name == "b"
    policy = selector.view.policy_for("n")
    assert policy is not None
    assert policy.key == "ns/code"
    assert selector.view.policy_for("other") is None


def test_of_two_policies_with_one_model_the_first_rules() -> None:
    view = build_view([of_model("m", "chat", {"a": 10_000}), of_model("m", "code", {"b": 10_000})])
    assert view.models["m"].policy.key == "ns/chat"
    assert view.conflicts == ("model m: ns/code is not in force, ns/chat rules it",)


def test_the_younger_table_says_where_an_engine_is_and_the_stricter_limit_holds() -> None:
    old = of_model("m", "chat", {"a": 10_000}, engines=[engine("a", concurrencyLimit=0)], issued="2026-01-01T00:00:00Z")
    moved = engine("a", concurrencyLimit=7) | {"urls": ["http://new"]}
    young = of_model("n", "code", {"a": 10_000}, engines=[moved], issued="2026-01-02T00:00:00Z")
    for tables in ([old, young], [young, old]):
        view = build_view(tables)
        assert [endpoint.url for endpoint in view.engines["ns/a"].endpoints] == ["http://new"]
        assert view.engines["ns/a"].limit == 7
        assert view.engines["ns/a"].config.concurrency_limit == 7


def test_served_names_and_capabilities_are_those_of_the_models_own_table() -> None:
    base = of_model(
        "m",
        "chat",
        {"a": 10_000},
        engines=[engine("a", models=[{"model": "l", "servedName": "L"}, {"model": "m", "servedName": "org/M"}])],
    )
    lora = of_model(
        "n",
        "code",
        {"a": 10_000},
        engines=[engine("a", capabilities=["tools"], models=[{"model": "n", "servedName": "n"}])],
    )
    selector = make_selector(base, lora)
    assert picked(selector.pick(RequestFacts("m"), 0.0)).served_name == "org/M"
    assert picked(selector.pick(RequestFacts("n", needs=frozenset({"tools"})), 0.0)).served_name is None


def test_models_of_the_same_engines_share_a_pool() -> None:
    table = raw_table({"a": 5000, "b": 5000})
    table["models"].append({"model": "lora", "classes": table["models"][0]["classes"]})
    table["models"].append({"model": "solo", "classes": [{"routes": [route("a", 10_000)]}]})
    view = make_selector(parsed(table)).view
    assert view.models["m"].pool is view.models["lora"].pool
    assert view.models["m"].pool is not view.models["solo"].pool
    assert len(view.engines["ns/a"].pools) == 2


def test_resolved_services_go_before_urls() -> None:
    service = {"name": "a", "namespace": "ns", "port": 8000}
    table = make_table({"a": 10_000}, engines=[engine("a", service=service)])
    view = build_view([table], endpoints={"ns/a": ["http://10.0.0.2:1", "http://10.0.0.1:1"]})
    assert [endpoint.url for endpoint in view.engines["ns/a"].endpoints] == ["http://10.0.0.1:1", "http://10.0.0.2:1"]


def test_unchanged_weights_keep_their_orders_and_turns() -> None:
    selector = make_selector(make_table({"a": 6000, "b": 4000}))
    freely(selector)
    before = selector.view.models["m"].classes[0].everyone
    swap(selector, make_table({"a": 6000, "b": 4000}, hash="other"))
    after = selector.view.models["m"].classes[0].everyone
    assert (after.orders, after.turns) == (before.orders, before.turns)
    swap(selector, make_table({"a": 5000, "b": 5000}))
    changed = selector.view.models["m"].classes[0].everyone
    assert changed.orders is not after.orders
    assert changed.turns is not after.turns


def test_turns_go_on_over_changing_tables() -> None:
    """WEI-01: an engine with 1 % gets its share although tables change every few requests.

    https://github.com/traefik/traefik/issues/9436
    """
    selector = make_selector(make_table({"a": 9900, "b": 100}))
    names = []
    for table in range(400):
        names += [freely(selector) for _ in range(5)]
        swap(selector, make_table({"a": 9900 - table % 2, "b": 100 + table % 2}))
    assert 16 <= names.count("b") <= 24


def test_replicas_that_stay_keep_their_turns() -> None:
    urls = ["http://r0", "http://r1", "http://r2"]
    table = make_table({"a": 10_000}, engines=[engine("a") | {"urls": urls}])
    selector = make_selector(table)
    held(selector)
    before = selector.view.engines["ns/a"].turns
    swap(selector, table)
    assert selector.view.engines["ns/a"].turns is before
    swap(selector, make_table({"a": 10_000}, engines=[engine("a") | {"urls": urls[:2]}]))
    assert {held(selector).url for _ in range(8)} == {"http://r0", "http://r1"}
    assert sum(count for _, _, count in selector.in_flight()) >= 8


def test_sets_for_needs_are_prepared_again_at_a_swap() -> None:
    engines = [engine("a", capabilities=["tools"], maxModelLen=1000), engine("b", maxModelLen=9000)]
    selector = make_selector(make_table({"a": 5000, "b": 5000}, engines=engines))
    tools = frozenset({"tools"})
    freely(selector, needs=tools)
    freely(selector, body_bytes=20_000)
    selector.pick(facts(needs=frozenset({"vision"})), 0.0)
    swap(selector, make_table({"a": 5000, "b": 5000}, engines=engines))
    assert freely(selector, needs=tools) == "a"
    assert freely(selector, body_bytes=20_000) == "b"


def test_sets_for_needs_are_bounded() -> None:
    selector = make_selector(make_table())
    for number in range(1000):
        selector.pick(facts(needs=frozenset({f"n{number}"})), 0.0)
    assert len(selector.view.models["m"].classes[0]._sets) <= 64


def test_more_prompt_classes_after_a_swap() -> None:
    selector = make_selector(make_table({"a": 10_000}))
    classes = [{"routes": [route("a", 10_000)]}] * 2
    swap(selector, make_table({"a": 10_000}, classEdges=[10], models=[{"model": "m", "classes": classes}]))
    assert held(selector, body_bytes=400).prompt_class == 1


def test_budget_and_queue_outlive_a_swap_with_new_figures() -> None:
    selector = make_selector(make_table(queue={"max": 1}))
    before = selector.view.policies[0]
    before.queue.enter(1, 0.0)
    swap(selector, make_table(queue={"max": 5}))
    after = selector.view.policies[0]
    assert after.budget is before.budget
    assert after.queue is before.queue
    assert (len(after.queue), after.queue.limit) == (1, 5)


def test_priorities() -> None:
    names = [{"name": "interactive", "value": 100}, {"name": "batch", "value": 10}]
    policy = build_view([make_table(priorities=names)]).policies[0]
    assert policy.priority("interactive").value == 100
    assert [policy.priority(name).name for name in ("batch", "Interactive", "", None)] == ["batch"] * 4
    assert not policy.sheds


def views_alive() -> int:
    gc.collect()
    return sum(isinstance(found, TableView) for found in gc.get_objects())


def test_old_views_are_not_kept() -> None:
    selector = make_selector(make_table())
    freely(selector, needs=frozenset())
    swap(selector, make_table({"a": 5000, "b": 5000}))
    before = views_alive()
    for weight in range(5):
        freely(selector)
        swap(selector, make_table({"a": 5000 + weight, "b": 5000 - weight}))
    assert views_alive() == before


def test_old_views_end_without_a_collection() -> None:
    """What pauses.aside() relies on: no cycles are left behind, so that nothing has to look for them."""
    selector = make_selector(make_table())
    gc.collect()
    gc.disable()
    try:
        for weight in range(3):
            freely(selector, needs=frozenset())
            held(selector)
            swap(selector, make_table({"a": 5000 + weight, "b": 5000 - weight}))
        assert gc.collect() == 0
    finally:
        gc.enable()
