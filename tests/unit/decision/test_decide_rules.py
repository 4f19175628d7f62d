"""Decisions where something stands in the way: conflicts, break-glass, mass loss, failures, bounds.

Cases STS-05 (https://github.com/kubernetes-sigs/gateway-api/pull/4043), LP-02
(https://github.com/llm-d/llm-d-autoscaling/pull/102), CRD-04 (https://github.com/openshift/api/pull/412).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from headrace_api.status import PolicyStatus
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import EngineSignal, Factor, Reading, Signals, SignalStatus
from headrace_operator.strategies.optimized import optimized
from support.operator_ticks import LABELS, Ticks, offered, one, quiet, reasons, three
from support.world import demand, engine, frontend, measured, policy


def test_the_older_rules_and_the_next_is_promoted() -> None:
    """Case STS-05: over a restart, and when the winner is deleted."""
    older = policy("zeta", metadata={"creationTimestamp": "2026-11-01T10:00:00Z"}, paths=["/v1/zeta"])
    younger = policy("alpha", metadata={"creationTimestamp": "2026-11-01T10:00:01Z"})
    ticks = Ticks()
    decision = ticks.tick(three(), [younger, older])
    assert [table.policy for table in decision.tables] == ["zeta"]
    assert ticks.condition("Stalled", "ns/alpha") == ("True", "Conflicted")
    assert ticks.condition("Ready", "ns/alpha") == ("False", "Conflicted")
    assert ticks.condition("Stalled", "ns/zeta") == ("", "")
    assert ("RoutingPolicy", "ns/alpha", "PolicyInvalid") in reasons(decision)
    conditions = ticks.statuses["ns/alpha"].conditions
    assert "ns/zeta is older and rules model m at fe" in conditions[0].message
    ticks.restart()
    assert quiet(ticks.tick(three(), [older, younger]))
    promoted = ticks.tick(three(), [younger])
    assert [table.policy for table in promoted.tables] == ["alpha"]
    assert promoted.orphans == (("ns/zeta", "fe"),)
    assert ticks.condition("Stalled", "ns/alpha") == ("", "")


def test_two_tables_never_share_a_name() -> None:
    policies = [policy("a-b", [frontend("c")]), policy("a", [frontend("b-c")])]
    ticks = Ticks()
    decision = ticks.tick(three(), policies)
    assert [table.policy for table in decision.tables] == ["a"]
    assert ticks.condition("Published", "ns/a-b") == ("False", "ConfigMapTaken")
    assert ticks.condition("Stalled", "ns/a-b") == ("True", "ConfigMapTaken")
    assert "headrace-a-b-c" in ticks.statuses["ns/a-b"].conditions[0].message


def test_shadow_publishes_nothing_and_tells_all() -> None:
    ticks = Ticks()
    decision = ticks.tick(three(), [one(mode="Shadow")], offered(15))
    assert decision.tables == ()
    assert ticks.statuses["ns/p"].weights == ("fe: a 100 %",)
    assert ticks.condition("Ready") == ("True", "Shadow")
    assert ticks.condition("Published") == ("", "")
    assert reasons(decision) == []
    assert quiet(ticks.tick(three(), [one(mode="Shadow")], offered(15)))
    ticks.tick(three(), [one(mode="Shadow")], offered(30))
    assert ticks.statuses["ns/p"].weights == ("fe: a 67 %, b 33 %",)
    assert ticks.tables == {}


def test_enforce_to_shadow_and_back() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    decision = ticks.tick(three(), [one(mode="Shadow")], offered(30))
    assert (decision.tables, decision.orphans) == ((), ())
    message = ticks.statuses["ns/p"].conditions[0].message
    assert message == "solved and reported, nothing is published; the last tables stay as they are"
    back = ticks.tick(three(), [one()], offered(30))
    assert [table.identity.revision > 1 for table in back.tables] == [True]
    assert ticks.weights("fe") == {"a": 6667, "b": 3333}


FROZEN = {"annotations": {"headrace.dev/freeze-until": "2026-11-29T13:00:00Z", "headrace.dev/why": "load test"}}


def test_frozen_keeps_its_table() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    decision = ticks.tick(three(), [one(metadata=FROZEN, queue={"max": 3})], offered(30))
    assert decision.tables == ()
    assert ticks.condition("Ready") == ("True", "Frozen")
    assert "load test" in ticks.statuses["ns/p"].conditions[0].message


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


def failing(snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Solution:
    return Solution(status="Failed", objective=0.0, sources=(), routes=(), engines=(), message="the solver gave up")


def test_a_solver_that_fails_leaves_the_table() -> None:
    """Case LP-02 g: the last weights stay, a condition says so, the next cycle tries again."""
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    decision = ticks.tick(three(), [one()], offered(30), solve=failing)
    assert decision.tables == ()
    assert ticks.condition("Solved") == ("False", "SolverFailed")
    assert ticks.condition("Ready") == ("True", "Published")
    assert ticks.weights("fe") == {"a": 10_000}
    ticks.tick(three(), [one()], offered(30))
    assert ticks.condition("Solved") == ("True", "Optimal")
    assert ticks.weights("fe") == {"a": 6667, "b": 3333}


def test_a_solver_that_fails_from_the_start() -> None:
    ticks = Ticks()
    assert ticks.tick(three(), [one()], solve=failing).tables == ()
    assert ticks.condition("Ready") == ("False", "SolverFailed")
    ticks.tick(three(), [one()])
    assert ticks.condition("Ready") == ("True", "Published")


def test_feedback_is_stalled() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one(strategy={"type": "Feedback"})])
    assert decision.tables == ()
    assert ticks.condition("Stalled") == ("True", "StrategyNotAvailable")
    assert ticks.weights("fe") == {"a": 10_000}


@pytest.mark.parametrize("strategy", ["Nearest", "RoundRobin", "Static"])
def test_rules_are_quiet_too(strategy: str) -> None:
    ticks = Ticks()
    rule = one(strategy={"type": strategy})
    first = ticks.tick(three(), [rule], offered(15))
    assert len(first.tables) == 1
    assert ticks.condition("Solved") == ("True", strategy)
    assert first.tables[0].guard is None
    for rate in (15.0, 16.0, 25.0):
        assert quiet(ticks.tick(three(), [rule], offered(rate)))
    moved = ticks.tick(three(), [rule], Signals(demand=(demand(rps=25),), engines=(measured("a", alive=False),)))
    assert len(moved.tables) == 1


def test_a_table_too_large_stays_out() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    urls = [f"http://{'x' * 240}-{index}.example:8000" for index in range(256)]
    many = [engine(f"e{index}", 20, replicas=None, endpoints={"urls": urls}) for index in range(17)]
    decision = ticks.tick([*three(), *many], [one(frontends=[frontend(), frontend("fe-2")])])
    assert {fault.frontend for fault in decision.too_large} == {"fe", "fe-2"}
    assert decision.tables == ()
    assert ticks.condition("Published") == ("False", "TableTooLarge")
    assert ticks.weights("fe") == {"a": 10_000}


def test_orphans_unless_retained() -> None:
    ticks = Ticks()
    kept = frontend("fe-2", publish={"onDelete": "Retain"})
    ticks.tick(three(), [one(frontends=[frontend(), kept, frontend("fe-3")])])
    decision = ticks.tick(three(), [one()])
    assert decision.orphans == (("ns/p", "fe-3"),)
    assert ticks.tick(three(), []).orphans == (("ns/p", "fe"), ("ns/p", "fe-3"))


def test_penalties_are_events_on_the_engine_and_its_policies() -> None:
    ticks = Ticks()
    slow = Signals(engines=(measured("a", penalty=Factor(value=0.4, reason="TTFT 3 times its profile")),))
    ticks.tick(three(), [one(), policy("s", [frontend("fe-2")], mode="Shadow")])
    decision = ticks.tick(three(), [one(), policy("s", [frontend("fe-2")], mode="Shadow")], slow)
    told = [event for event in decision.events if event.reason == "EnginePenalized"]
    assert [(event.kind, event.id, event.type) for event in told] == [
        ("InferenceEngine", "ns/a", "Warning"),
        ("RoutingPolicy", "ns/p", "Warning"),
        ("RoutingPolicy", "ns/s", "Warning"),
    ]
    assert {event.message for event in told} == {"a x0.4: TTFT 3 times its profile"}
    back = ticks.tick(three(), [one()])
    assert ("InferenceEngine", "ns/a", "EngineRecovered") in reasons(back)
    assert not any(event.reason.startswith("Engine") for event in ticks.tick(three()[1:], [one()]).events)


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


def test_stale_signals_are_told_once_and_change_no_readiness() -> None:
    ticks = Ticks()
    fresh = Signals(states=(SignalStatus(name="engine ns/a", state="Fresh"), SignalStatus(name="other", state="Held")))
    held = Signals(states=(SignalStatus(name="engine ns/a", state="Held", since="2026-11-29T11:59:00Z"),))
    ticks.tick(three(), [one()], fresh)
    assert ticks.condition("SignalsFresh") == ("True", "Fresh")
    decision = ticks.tick(three(), [one()], held)
    assert reasons(decision) == [("RoutingPolicy", "ns/p", "SignalsStale")]
    assert ticks.statuses["ns/p"].signals == ("engine ns/a: Held since 2026-11-29T11:59:00Z",)
    assert ticks.condition("Ready") == ("True", "Published")
    assert quiet(ticks.tick(three(), [one()], held))
    ticks.tick(three(), [one()], fresh)
    assert ticks.statuses["ns/p"].signals == ()


def test_many_stale_signals_are_counted() -> None:
    ticks = Ticks()
    names = [engine(f"e{index:02d}") for index in range(12)]
    states = tuple(SignalStatus(name=f"engine ns/e{index:02d}", state="Unknown") for index in range(12))
    ticks.tick(names, [one()], Signals(states=states))
    assert ticks.statuses["ns/p"].signals[-1] == "and 5 signals more"
    assert len(ticks.statuses["ns/p"].signals) == 8


def test_each_policys_own_uid_in_a_cluster() -> None:
    ticks = Ticks(uid="")
    decision = ticks.tick(three(), [one(), policy("q", [frontend("fe-2")], metadata={"uid": ""})])
    assert [table.identity.uid for table in decision.tables] == ["uid-p", "ns/q"]


def test_generation_is_observed_in_every_condition() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one(metadata={"generation": 7})])
    assert decision.tables == ()
    status = dict(decision.statuses)["ns/p"]
    assert status.observed_generation == 7
    assert {condition.observed_generation for condition in status.conditions} == {7}


def test_history_and_bounds() -> None:
    ticks = Ticks()
    for turn in range(14):
        ticks.tick(three(), [one()], offered(15 if turn % 2 else 45), after=700)
    status = ticks.statuses["ns/p"]
    assert len(status.history) == 10
    assert msgspec.json.decode(msgspec.json.encode(status), type=PolicyStatus) == status


def test_an_engine_that_comes_back_is_listed_again() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    ticks.tick(three(), [one()], Signals(engines=(measured("c", alive=False),)))
    assert [entry.id for entry in ticks.tables["ns/p", "fe"].engines] == ["ns/a", "ns/b"]
    ticks.tick(three(), [one()])
    assert [entry.id for entry in ticks.tables["ns/p", "fe"].engines] == ["ns/a", "ns/b", "ns/c"]


def test_no_policy_at_all() -> None:
    assert quiet(Ticks().tick(three(), []))


def test_solving_is_asked_once_a_component() -> None:
    calls: list[tuple[str, ...]] = []

    def counting(snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Solution:
        calls.append(policies)
        return optimized(snapshot, policies, fixed)

    ticks = Ticks()
    ticks.tick(three(), [one()], solve=counting)
    ticks.tick(three(), [one()], solve=counting)
    assert calls == [("ns/p",)]
