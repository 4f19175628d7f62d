"""Decisions where engines are lost, all of them too, and where they come back.

Case CRD-04 (https://github.com/openshift/api/pull/412).
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.snapshot.signals import EngineSignal, Reading, Signals
from support.operator_ticks import LABELS, Ticks, one, quiet, reasons, three
from support.world import demand, engine, measured, policy


@pytest.mark.parametrize(
    ("then", "held"),
    [
        pytest.param([engine("a", 20, metadata={"labels": {"tier": "typo"}}) for _ in "a"], True, id="a label's typo"),
        pytest.param([], True, id="an empty list"),
        pytest.param([engine("a", 20, replicas=0, metadata=LABELS)], False, id="an edit of the engine"),
        pytest.param([engine("a", 20, state="Draining", metadata=LABELS)], False, id="drained on purpose"),
    ],
)
def test_a_mass_loss_needs_a_second_source(then: list[Any], held: bool) -> None:
    ticks = Ticks()
    rule = policy(engineSelector={"matchLabels": {"tier": "prod"}})
    ticks.tick([engine("a", 20, metadata=LABELS)], [rule])
    decision = ticks.tick(then, [rule])
    assert decision.tables == ()
    assert ticks.weights("fe") == {"a": 10_000}
    if held:
        assert ticks.condition("SignalsFresh") == ("False", "MassLoss")
        assert ticks.condition("Ready") == ("True", "Published")
        assert ("RoutingPolicy", "ns/p", "SignalsStale") in reasons(decision)
        assert ticks.condition("Solved") == ("True", "Optimal")
    else:
        assert ticks.condition("Ready") == ("False", "NoEligibleEngines")
    assert quiet(ticks.tick(then, [rule]))


def test_a_hold_ends_when_the_engines_are_back() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    ticks.tick([], [one()])
    assert ticks.condition("SignalsFresh") == ("False", "MassLoss")
    ticks.tick(three(), [one()])
    assert ticks.condition("SignalsFresh")[1] == "NotMeasured"


def test_replicas_that_somebody_else_saw_go_count_at_once() -> None:
    """A Deployment scaled down on purpose, seen in its endpoints and by the routers, is no mass loss."""
    ticks = Ticks()
    fleet = [engine("a", 20, region="r1"), engine("b", 20, region="r2")]

    def ready(a: float, *, agreed: bool) -> Signals:
        engines = (
            measured("a", ready_replicas=Reading(value=a), loss_agreed=agreed),
            measured("b", ready_replicas=Reading(value=1)),
        )
        return Signals(engines=engines)

    ticks.tick(fleet, [one()], ready(6, agreed=True))
    ticks.tick(fleet, [one()], ready(1, agreed=False))
    assert ticks.condition("SignalsFresh") == ("False", "MassLoss")
    ticks.tick(fleet, [one()], ready(0, agreed=True))
    assert ticks.condition("SignalsFresh")[1] != "MassLoss"
    assert ticks.weights("fe") == {"b": 10_000}


def test_a_hold_ends_when_somebody_else_saw_it() -> None:
    ticks = Ticks()
    two = three()[:2]
    gone = Signals(engines=tuple(measured(name, ready_replicas=Reading(value=0)) for name in "ab"))
    dead = Signals(engines=tuple(measured(name, ready_replicas=Reading(value=0), alive=False) for name in "ab"))
    ticks.tick([*two, engine("c", 5, region="r3")], [one()])
    held = ticks.tick([*two, engine("c", 5, region="r3")], [one()], gone)
    assert held.tables == ()
    assert ticks.condition("SignalsFresh") == ("False", "MassLoss")
    ticks.tick([*two, engine("c", 5, region="r3")], [one()], dead)
    assert ticks.weights("fe") == {"c": 10_000}


def test_half_of_it_is_believed() -> None:
    ticks = Ticks()
    two = [engine("a", 20, region="r1"), engine("b", 20, region="r2")]
    ticks.tick(two, [one()])
    ticks.tick(two, [one()], Signals(engines=(measured("a", ready_replicas=Reading(value=0)),)))
    assert ticks.weights("fe") == {"b": 10_000}


def test_all_engines_dead_keeps_the_table_and_recovers() -> None:
    ticks = Ticks()
    dead = Signals(engines=tuple(measured(name, alive=False) for name in "abc"))
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one()], dead)
    assert decision.tables == ()
    assert ticks.condition("Ready") == ("False", "NoEligibleEngines")
    assert ticks.condition("Stalled") == ("", "")
    assert "a doesn't answer" in ticks.statuses["ns/p"].conditions[0].message
    assert quiet(ticks.tick(three(), [one()], dead))
    ticks.tick(three(), [one()])
    assert ticks.condition("Ready") == ("True", "Published")


def test_a_policy_emptied_by_an_edit_is_stalled() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one(engineSelector={"matchLabels": {"tier": "typo"}})])
    assert decision.tables == ()
    assert ticks.condition("Stalled") == ("True", "NoEligibleEngines")
    assert ticks.weights("fe") == {"a": 10_000}
    assert quiet(ticks.tick(three(), [one(engineSelector={"matchLabels": {"tier": "typo"}})]))
    ticks.tick(three(), [one()])
    assert ticks.condition("Stalled") == ("", "")


def test_a_selector_that_matches_nothing_waits_for_engines() -> None:
    """Case CRD-04 h: accepted, not Ready; picked up without an edit when an engine appears."""
    ticks = Ticks()
    rule = policy(engineSelector={"matchLabels": {"tier": "prod"}})
    decision = ticks.tick(three(), [rule])
    assert decision.tables == ()
    assert ticks.condition("Ready") == ("False", "NoEligibleEngines")
    assert ticks.condition("Stalled") == ("", "")
    assert quiet(ticks.tick(three(), [rule]))
    appeared = ticks.tick([*three(), engine("z", metadata=LABELS)], [rule])
    assert [table.frontend for table in appeared.tables] == ["fe"]
    assert ticks.condition("Ready") == ("True", "Published")


def test_a_model_that_loses_its_engines_keeps_its_routes_beside_the_others() -> None:
    ticks = Ticks()
    both = policy(models=[{"name": "m"}, {"name": "n"}])
    engines = [engine("a", models=[{"name": "m"}]), engine("b", models=[{"name": "n"}])]
    ticks.tick(engines, [both])
    dead = Signals(engines=(measured("b", alive=False),), demand=(demand(rps=50),))
    ticks.tick([engine("a", 20), engines[1]], [both], dead)
    table = ticks.tables["ns/p", "fe"]
    assert [(model.model, model.classes[0].routes[0].engine) for model in table.models] == [
        ("m", "ns/a"),
        ("n", "ns/b"),
    ]
    assert [entry.id for entry in table.engines] == ["ns/a", "ns/b"]
    assert ticks.condition("Ready") == ("False", "NoEligibleEngines")


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (measured("a", alive=False), "a does not answer"),
        (measured("a", ready_replicas=Reading(value=0.0)), "a has no ready replica: nothing new is sent there"),
    ],
    ids=["dead", "no replica"],
)
def test_an_engine_that_comes_or_goes_is_told_once(lost: EngineSignal, message: str) -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    gone = ticks.tick(three(), [one()], Signals(engines=(lost,)))
    told = [event for event in gone.events if event.reason == "EngineUnavailable"]
    assert [(event.kind, event.id, event.type, event.message) for event in told] == [
        ("InferenceEngine", "ns/a", "Warning", message),
        ("RoutingPolicy", "ns/p", "Warning", message),
    ]
    assert not any(
        reason == "EngineUnavailable" for *_, reason in reasons(ticks.tick(three(), [one()], Signals(engines=(lost,))))
    )
    back = [event for event in ticks.tick(three(), [one()]).events if event.reason == "EngineAvailable"]
    assert [event.message for event in back] == ["a has 1 ready replica again"] * 2


def test_an_engine_that_comes_back_is_listed_again() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    ticks.tick(three(), [one()], Signals(engines=(measured("c", alive=False),)))
    assert [entry.id for entry in ticks.tables["ns/p", "fe"].engines] == ["ns/a", "ns/b"]
    ticks.tick(three(), [one()])
    assert [entry.id for entry in ticks.tables["ns/p", "fe"].engines] == ["ns/a", "ns/b", "ns/c"]
