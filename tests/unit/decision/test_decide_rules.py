"""Decisions where something stands in the way: conflicts, break-glass, failures, bounds.

Cases STS-05 (https://github.com/kubernetes-sigs/gateway-api/pull/4043), LP-02
(https://github.com/llm-d/llm-d-autoscaling/pull/102).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from headrace_api.status import PolicyStatus
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import Factor, Signals, SignalStatus
from headrace_operator.strategies.optimized import optimized
from support.operator_ticks import Ticks, offered, one, quiet, reasons, three
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
