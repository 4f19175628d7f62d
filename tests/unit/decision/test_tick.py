"""Which ticks solve anew: in-flight numbers of tables follow demand that moves no weight, but not its noise."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_operator.snapshot.signals import EngineSignal, Factor
from support.operator_ticks import FAR, TARGET, Ticks, offered, quiet, three
from support.world import engine, policy

PROFILE = {
    "ttft": [{"utilizationPercent": 0, "latency": "1s"}],
    "tbot": [{"utilizationPercent": 0, "latency": "10ms"}],
}


def world() -> tuple[list[Any], list[Any]]:
    """One engine that takes all, whatever the demand: weights never move."""
    return [engine("a", 1000, profile=PROFILE)], [policy(objective=TARGET)]


def in_flight(ticks: Ticks) -> float:
    return ticks.tables["ns/p", "fe"].engines[0].in_flight_here


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        pytest.param(40.0, False, id="the same"),
        pytest.param(44.0, False, id="noise"),
        pytest.param(32.0, False, id="noise below"),
        pytest.param(80.0, True, id="twice"),
        pytest.param(10.0, True, id="a quarter"),
    ],
)
def test_in_flight_numbers_follow_demand(rate: float, told: bool) -> None:
    """Routers judge their own load by N*: at twice the demand with the old N* every one of them would spill."""
    ticks = Ticks()
    engines, policies = world()
    ticks.tick(engines, policies, offered(40))
    before, history = in_flight(ticks), ticks.statuses["ns/p"].history
    decision = ticks.tick(engines, policies, offered(rate))
    assert len(decision.tables) == told
    assert in_flight(ticks) == pytest.approx(before * rate / 40 if told else before, rel=0.01)
    assert ticks.statuses["ns/p"].history == history
    assert not decision.events
    assert quiet(ticks.tick(engines, policies, offered(rate)))


def test_few_requests_in_flight_are_left_alone() -> None:
    ticks = Ticks()
    engines, policies = world()
    ticks.tick(engines, policies, offered(0.1))
    assert quiet(ticks.tick(engines, policies, offered(0.2)))


@pytest.mark.parametrize("strategy", ["Optimized", "RoundRobin", "Static", "Nearest"])
def test_limits_follow_replicas_and_edits_that_move_no_weight(strategy: str) -> None:
    """Twice the replicas with the old concurrency limit would be refusals beside idle engines."""
    ticks = Ticks()
    policies = [policy(objective=TARGET, strategy={"type": strategy})]

    def limit(replicas: int, concurrency: int) -> int:
        rates = {"perReplica": {"requestsPerSecond": 1000, "maxConcurrency": concurrency}}
        decision = ticks.tick([engine("a", replicas=replicas, capacity=rates)], policies, offered(40))
        assert (len(decision.tables), decision.history[1:]) == (1, ())
        assert quiet(ticks.tick([engine("a", replicas=replicas, capacity=rates)], policies, offered(40)))
        return ticks.tables["ns/p", "fe"].engines[0].concurrency_limit

    assert [limit(2, 100), limit(4, 100), limit(4, 50), limit(1, 50)] == [260, 520, 260, 65]


def test_a_publication_without_a_move_keeps_what_causes_are_told_against() -> None:
    """A penalty begins, an edit of a rule is published, then demand grows: health is a cause of the move too."""
    ticks = Ticks()

    def tick(penalty: float, rate: float, **rules: Any) -> Any:
        ill = EngineSignal(engine="ns/a", penalty=Factor(value=penalty, reason="slow"))
        return ticks.tick(three(), [policy(network=FAR, objective=TARGET, **rules)], offered(rate, engines=(ill,)))

    tick(1.0, 15)
    edit = tick(0.8, 15, queue={"max": 7})
    assert (len(edit.tables), edit.history) == (1, ())
    (line,) = tick(0.8, 18, queue={"max": 7}).history
    assert ": demand 50 %, health 50 %; fe: " in line[1]
