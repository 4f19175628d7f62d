"""The snapshot as a whole: ages, edges, previous weights, and one order whatever the order of its parts."""

from __future__ import annotations

from math import nan

import pytest

from headrace_api.table import (
    ClassRoutes,
    Identity,
    ModelRoutes,
    Route,
    RoutingTable,
    ShedShare,
)
from headrace_operator.snapshot.model import SavingSince
from headrace_operator.snapshot.signals import Reading, Signals, SignalStatus
from support.world import AT, demand, engine, frontend, measured, policy, snapshot


def table(
    *classes: dict[str, int],
    frontend: str = "fe",
    policy: str = "p",
    revision: int = 1,
    edges: tuple[int, ...] = (),
    shed: tuple[ShedShare, ...] = (),
    model: str = "m",
) -> RoutingTable:
    return RoutingTable(
        schema_version=1,
        identity=Identity(uid="u", term=1, revision=revision),
        policy=policy,
        policy_namespace="ns",
        frontend=frontend,
        issued="",
        hash="",
        models=(
            ModelRoutes(
                model=model,
                classes=tuple(
                    ClassRoutes(routes=tuple(Route(engine=f"ns/{k}", weight=v) for k, v in entry.items()), shed=shed)
                    for entry in classes
                ),
            ),
        ),
        engines=(),
        class_edges=edges,
    )


def test_ages_count_from_the_signals_own_time() -> None:
    signals = Signals(at="2026-11-29T11:58:30Z", demand=(demand(rps=7),))
    assert snapshot([engine()], [policy()], signals).demand[0].origin == "Held"


def test_a_time_that_is_none_is_named() -> None:
    found = snapshot([engine()], [policy()], Signals(at="noon", demand=(demand(rps=7),)))
    assert found.demand[0].origin == "Measured"
    assert "signals.at: 'noon' is not RFC 3339; ages are counted from now" in found.notes


@pytest.mark.parametrize("edges", [(600, 600), (0, 5), (-3,), tuple(range(1, 10))])
def test_edges_that_are_none(edges: tuple[int, ...]) -> None:
    found = snapshot([engine()], [policy()], Signals(class_edges=edges))
    assert found.class_edges == ()
    assert any("classEdges" in note for note in found.notes)


def test_what_is_passed_on_is_sorted_and_cleaned() -> None:
    saving = SavingSince(policy="ns/p", frontend="fe", model="m", prompt_class=0, engine="ns/b", since=1.0)
    signals = Signals(
        routers=(("fe-2", 2), ("fe-1", 0), ("fe-0", 3)),
        bytes_per_token=(("m", 3.5), ("n", 0.0), ("o", nan)),
        states=(SignalStatus(name="b", state="Held"), SignalStatus(name="a", state="Fresh")),
    )
    found = snapshot(
        [engine()],
        [policy()],
        signals,
        savings=(saving, SavingSince(policy="ns/a", frontend="", model="", prompt_class=0, engine="", since=0.0)),
        shedding=("ns/q", "ns/p", "ns/q"),
    )
    assert found.routers == (("fe-0", 3), ("fe-2", 2))
    assert found.bytes_per_token == (("m", 3.5),)
    assert [state.name for state in found.states] == ["a", "b"]
    assert [entry.policy for entry in found.savings] == ["ns/a", "ns/p"]
    assert found.shedding == ("ns/p", "ns/q")


def test_previous_weights_are_fractions_of_demand() -> None:
    found = snapshot([engine()], [policy()], previous=[table({"a": 7500, "b": 2500, "c": 0})])
    assert [(route.engine, route.weight) for route in found.previous] == [("ns/a", 0.75), ("ns/b", 0.25)]


def test_what_a_table_refuses_is_missing_from_them() -> None:
    shed = (ShedShare(priority="low", share=0.5),)
    priorities = {"shedding": {"priorities": [{"name": "high", "value": 9}, {"name": "low", "value": 1}]}}
    shares = [{"name": "high", "percent": 80}, {"name": "low", "percent": 20}]
    policies = [policy(frontends=[frontend(demand={"priorities": shares})], protection=priorities)]
    found = snapshot([engine()], policies, previous=[table({"a": 10_000}, shed=shed)])
    assert [route.weight for route in found.previous] == [pytest.approx(0.9)]


def test_the_later_of_two_tables_counts_and_strangers_do_not() -> None:
    tables = [
        table({"b": 10_000}, revision=3),
        table({"a": 10_000}, revision=2),
        table({"a": 10_000}, frontend="other"),
        table({"a": 10_000}, policy="gone"),
    ]
    found = snapshot([engine()], [policy()], previous=tables)
    assert [(route.engine, route.weight) for route in found.previous] == [("ns/b", 1.0)]
    assert snapshot([engine()], [policy()], previous=[table({"a": 10_000}, model="n")]).previous == ()


MIXED = {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 4000}}
OTHER = {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 8000}}


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        pytest.param(table({"a": 10_000}), ["a", "a", "a"], id="one class before"),
        pytest.param(
            table({"a": 10_000}, {"b": 10_000}, {"c": 10_000}, edges=(600, 1500)), ["a", "b", "c"], id="the same"
        ),
        pytest.param(table({"a": 10_000}, {"b": 10_000}, edges=(1000,)), ["a", "b", "b"], id="other edges"),
    ],
)
def test_previous_weights_by_prompt_class(old: RoutingTable, expected: list[str]) -> None:
    engines = [engine("a", capacity=MIXED), engine("b", capacity=OTHER), engine("c", capacity=MIXED)]
    signals = Signals(
        class_edges=(600, 1500),
        demand=(demand(rps=4, prompt_class=0), demand(rps=6, prompt_class=2)),
    )
    found = snapshot(engines, [policy()], signals, previous=[old])
    assert [(route.prompt_class, route.engine) for route in found.previous] == [
        (index, f"ns/{name}") for index, name in enumerate(expected)
    ]


def test_what_is_no_longer_told_apart_takes_the_mean_of_its_classes() -> None:
    """Terciles: each class had as many requests."""
    old = table({"a": 10_000}, {"a": 4000, "b": 6000}, {"b": 10_000}, edges=(600, 1500))
    found = snapshot([engine("a"), engine("b")], [policy()], Signals(demand=(demand(rps=4),)), previous=[old])
    assert [(route.prompt_class, route.engine) for route in found.previous] == [(0, "ns/a"), (0, "ns/b")]
    assert [route.weight for route in found.previous] == pytest.approx([1.4 / 3, 1.6 / 3])


def test_edges_that_tell_nothing_apart_are_left_out() -> None:
    signals = Signals(class_edges=(600, 1500), demand=(demand(rps=4, prompt_class=0), demand(rps=4, prompt_class=2)))
    assert snapshot([engine("a"), engine("b")], [policy()], signals).class_edges == ()
    mixed = [engine("a", capacity=MIXED), engine("b", capacity=OTHER)]
    assert snapshot(mixed, [policy()], signals).class_edges == (600, 1500)


def test_the_order_of_the_parts_does_not_matter() -> None:
    engines = [engine("b"), engine("a"), engine("c", replicas=None)]
    policies = [policy("q", [frontend("fe-2"), frontend("fe-1", None)]), policy("p")]
    signals = Signals(
        demand=(demand("fe-2", 3, policy="ns/q"), demand(rps=7), demand(rps=5)),
        engines=(measured("b", alive=False), measured("a", ready_replicas=Reading(value=2))),
        routers=(("fe", 2), ("fe-1", 1)),
    )
    backwards = Signals(demand=signals.demand[::-1], engines=signals.engines[::-1], routers=signals.routers[::-1])
    one = snapshot(
        engines, policies, signals, previous=[table({"a": 5000, "b": 5000}), table({"a": 10_000}, policy="q")]
    )
    other = snapshot(
        engines[::-1],
        policies[::-1],
        backwards,
        previous=[table({"a": 10_000}, policy="q"), table({"b": 5000, "a": 5000})],
    )
    assert one == other


def test_nothing_at_all() -> None:
    found = snapshot([], [])
    assert (found.engines, found.policies, found.demand, found.at) == ((), (), (), AT)
