"""Decisions over several ticks: what is written, what is not, and what is told of the causes.

Case STS-01 (https://github.com/strimzi/strimzi-kafka-operator/issues/13079: nothing changes, nothing is written, in any
order of the lists).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_operator.decision.memory import Memory
from headrace_operator.snapshot.signals import Factor, Reading, Signals
from support.operator_ticks import FAR, TARGET, Ticks, offered, one, quiet, reasons, three
from support.world import classic, engine, frontend, measured, policy


def test_the_first_tick_publishes_everything() -> None:
    ticks = Ticks()
    decision = ticks.tick(*classic())
    assert [(table.frontend, table.identity.revision, table.issued) for table in decision.tables] == [
        ("fe-a", 1, "2026-11-29T12:00:05Z"),
        ("fe-b", 1, "2026-11-29T12:00:05Z"),
        ("fe-c", 1, "2026-11-29T12:00:05Z"),
    ]
    assert {table.identity.uid for table in decision.tables} == {"state"}
    status = ticks.statuses["ns/classic"]
    assert status.weights == ("fe-a: a 100 %", "fe-b: b 83 %, c 17 %", "fe-c: c 100 %")
    assert status.history == (
        "2026-11-29T12:00:05Z rev 1: first weights; fe-a: a 100 %; fe-b: b 83 %, c 17 %; fe-c: c 100 %",
    )
    assert (status.as_of, status.summary.changed, status.summary.revision) == (
        "2026-11-29T12:00:05Z",
        "2026-11-29T12:00:05Z",
        1,
    )
    summary = status.summary
    assert (summary.demand, summary.capacity, summary.utilization) == ("250 requests/s", "280 requests/s", "88 %")
    assert (summary.engines, summary.shed, summary.solver) == ("3 of 3", "0 %", "Optimal")
    assert (summary.latency.total, summary.latency.network, summary.latency.ttft) == ("204 ms", "4.1 ms", "200 ms")
    assert reasons(decision) == [("RoutingPolicy", "ns/classic", "WeightsChanged")]
    assert decision.history == (("ns/classic", status.history[0]),)


def test_nothing_moved_nothing_written() -> None:
    """Case STS-01: ten cycles, the lists shuffled between them."""
    ticks = Ticks()
    engines, policies = classic()
    ticks.tick(engines, policies)
    for turn in range(10):
        assert quiet(ticks.tick(engines[turn % 3 :] + engines[: turn % 3], policies)), turn


def test_noise_within_the_deadband_writes_nothing() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(10.0))
    for turn in range(10):
        assert quiet(ticks.tick(three(), [one()], offered(10.0 + (-1) ** turn * 0.3))), turn


def test_without_warm_models_it_is_the_same() -> None:
    ticks = Ticks(warm=False)
    ticks.tick(*classic())
    assert quiet(ticks.tick(*classic()))


def test_a_full_engine_is_quiet_too() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(30))
    assert ticks.weights("fe") == {"a": 6667, "b": 3333}
    for _ in range(5):
        assert quiet(ticks.tick(three(), [one()], offered(30)))


def test_a_surge_moves_weights_and_says_why() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    decision = ticks.tick(three(), [one()], offered(30))
    assert ticks.weights("fe") == {"a": 6667, "b": 3333}
    assert [table.identity.revision for table in decision.tables] == [2]
    status = ticks.statuses["ns/p"]
    assert status.history[0] == "2026-11-29T12:00:10Z rev 2: demand 100 %; fe: a 100 % -> 67 %, b 0 % -> 33 %"
    assert len(status.history) == 2
    assert status.conditions[0].last_transition_time == "2026-11-29T12:00:05Z"


@pytest.mark.parametrize(
    ("engines", "policies", "signals", "cause"),
    [
        pytest.param(None, None, Signals(engines=(measured("a", alive=False),)), "health 100 %", id="dead"),
        pytest.param(
            None,
            None,
            Signals(engines=(measured("a", alive=False, ready_replicas=Reading(value=0)),)),
            "health 100 %",
            id="dead, and counted so",
        ),
        pytest.param(
            None, None, Signals(engines=(measured("a", penalty=Factor(value=0.5)),)), "health 100 %", id="penalised"
        ),
        pytest.param(
            [engine("a", 12, region="r1"), *three()[1:]], None, Signals(), "capacity 100 %", id="declared capacity"
        ),
        pytest.param(
            None,
            None,
            Signals(engines=(measured("a", ready_replicas=Reading(value=0.5)),)),
            "capacity 100 %",
            id="ready",
        ),
        pytest.param(
            None,
            [
                policy(
                    network={"roundTrip": [{"from": "r1", "to": "r1", "latency": "90ms"}, *FAR["roundTrip"]]},
                    objective=TARGET,
                )
            ],
            Signals(),
            "network 100 %",
            id="network",
        ),
        pytest.param(
            [
                engine("a", 20, region="r1", profile={"ttft": [{"utilizationPercent": 0, "latency": "5s"}]}),
                *three()[1:],
            ],
            None,
            Signals(),
            "profiles 100 %",
            id="profile",
        ),
        pytest.param(
            [engine("a", 20, region="r1", state="Draining"), *three()[1:]],
            None,
            Signals(),
            "policy 100 %",
            id="drained",
        ),
        pytest.param(three()[1:], None, Signals(), "policy 100 %", id="removed"),
        pytest.param(None, [one(strategy={"type": "RoundRobin"})], Signals(), "policy 100 %", id="another strategy"),
    ],
)
def test_causes(engines: Any, policies: Any, signals: Signals, cause: str) -> None:
    ticks = Ticks()
    still = policy(network=FAR, objective=TARGET, frontends=[frontend(rps=18)], publication={"maxShiftPercent": 100})

    def with_demand(entry: Any) -> Any:
        spec = msgspec.structs.replace(entry.spec, frontends=still.spec.frontends, publication=still.spec.publication)
        return msgspec.structs.replace(entry, spec=spec)

    ticks.tick(three(), [still])
    decision = ticks.tick(engines or three(), [with_demand(entry) for entry in policies or [one()]], signals)
    assert len(decision.history) == 1
    assert f": {cause};" in decision.history[0][1]


def test_two_causes_at_once() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(18))
    signals = offered(30, engines=(measured("a", penalty=Factor(value=0.5)),))
    line = ticks.tick(three(), [one()], signals).history[0][1]
    assert "demand " in line
    assert "health " in line
    shares = [int(part.split()[-2]) for part in line.split(": ")[1].split(";")[0].split(", ")]
    assert sum(shares) == 100


def test_an_edit_that_moves_no_weight_is_published_without_history() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one(timeouts={"connect": "3s"})])
    assert [table.timeouts.connect for table in decision.tables] == [3.0]
    assert decision.history == ()
    assert reasons(decision) == []
    status = ticks.statuses["ns/p"]
    assert (len(status.history), status.summary.revision, status.summary.changed) == (1, 2, "2026-11-29T12:00:05Z")
    assert status.as_of == "2026-11-29T12:00:10Z"


def test_a_learned_ratio_reaches_the_routers_though_no_weight_moves() -> None:
    """The API page, Demand: bytes x a per-model ratio learned; classes and maxModelLen are judged by it."""
    ticks = Ticks()
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one()], Signals(bytes_per_token=(("m", 3.2),)))
    assert [table.models[0].bytes_per_token for table in decision.tables] == [3.2]
    assert decision.history == ()
    assert quiet(ticks.tick(three(), [one()], Signals(bytes_per_token=(("m", 3.2),))))
    assert quiet(ticks.tick(three(), [one()]))


def test_a_restart_goes_on_where_it_was() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    ticks.tick(three(), [one()], offered(30))
    ticks.restart()
    assert quiet(ticks.tick(three(), [one()], offered(30)))
    decision = ticks.tick(three(), [one()], offered(15), after=700)
    assert [(table.identity.term, table.identity.revision) for table in decision.tables] == [(2, 3)]
    assert [line.split(": ")[0] for line in ticks.statuses["ns/p"].history] == [
        "2026-11-29T12:11:55Z rev 3",
        "2026-11-29T12:00:10Z rev 2",
        "2026-11-29T12:00:05Z rev 1",
    ]


def test_a_restart_into_another_world_says_so() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    ticks.restart()
    decision = ticks.tick(three(), [one()], offered(30))
    assert "rev 2: restart 100 %;" in decision.history[0][1]


def test_a_restart_with_an_edit_of_rules_alone() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    ticks.restart()
    decision = ticks.tick(three(), [one(queue={"max": 7})])
    assert [table.queue.max for table in decision.tables] == [7]
    assert ticks.weights("fe") == {"a": 10_000}


def test_memory_survives_as_text() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one(), policy("s", [frontend("fe-2")], mode="Shadow")], offered(15))
    again = msgspec.json.decode(msgspec.json.encode(ticks.memory), type=Memory)
    assert again == ticks.memory
    ticks.memory = again
    decision = ticks.tick(three(), [one(), policy("s", [frontend("fe-2")], mode="Shadow")], offered(30))
    assert ": demand 100 %;" in dict(decision.history)["ns/p"]


def test_revision_may_be_given() -> None:
    assert {table.identity.revision for table in Ticks().tick(*classic(), revision=41).tables} == {41}


def test_a_move_that_saves_little_is_delayed_not_forbidden() -> None:
    ticks = Ticks()
    home = policy(network={"roundTrip": [{"from": "r1", "to": "r2", "latency": "2ms"}]}, objective=TARGET)
    small = [engine("a", 10, region="r1"), engine("b", 30, region="r2")]
    ticks.tick(small, [home], offered(20))
    assert ticks.weights("fe") == {"a": 5000, "b": 5000}
    moved = []
    for _ in range(14):
        ticks.tick(small, [home], offered(10))
        moved.append(ticks.weights("fe") != {"a": 5000, "b": 5000})
    assert not any(moved[:10])
    assert any(moved)
    assert ticks.weights("fe")["a"] > 5000
    assert ": demand" in ticks.statuses["ns/p"].history[0] or ": settling" in ticks.statuses["ns/p"].history[0]


def test_shedding_opens_after_two_readings_and_closes() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    first = ticks.tick(three(), [one()], offered(90))
    assert all(not entry.shed for table in first.tables for model in table.models for entry in model.classes)
    same = ticks.tick(three(), [one()], offered(90))
    assert ticks.memory.shedding == ()
    assert not any(event.reason == "SheddingStarted" for event in same.events)
    second = ticks.tick(three(), [one()], offered(91))
    assert ticks.memory.shedding == ("ns/p",)
    (entry,) = ticks.tables["ns/p", "fe"].models[0].classes
    assert entry.shed[0].share == pytest.approx(31 / 91, abs=1e-5)
    assert ("RoutingPolicy", "ns/p", "SheddingStarted") in reasons(second)
    assert ticks.condition("CapacitySufficient") == ("False", "Shedding")
    assert ticks.condition("Ready") == ("True", "Published")
    assert "short of capacity: 31 of 91 requests/s" in ticks.statuses["ns/p"].why[0]
    assert "one more replica helps most at a" in ticks.statuses["ns/p"].why[1]
    for _ in range(4):
        assert quiet(ticks.tick(three(), [one()], offered(91)))
    closed = ticks.tick(three(), [one()], offered(15))
    assert ("RoutingPolicy", "ns/p", "SheddingStopped") in reasons(closed)
    assert ticks.memory.shedding == ()
    assert ticks.tables["ns/p", "fe"].models[0].classes[0].shed == ()


def test_one_reading_too_high_sheds_nothing() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    ticks.tick(three(), [one()], offered(90))
    ticks.tick(three(), [one()], offered(15))
    ticks.tick(three(), [one()], offered(90))
    assert ticks.memory.shedding == ()


def test_declared_demand_sheds_at_once() -> None:
    ticks = Ticks()
    decision = ticks.tick(*classic(b=50))
    assert ("RoutingPolicy", "ns/classic", "SheddingStarted") in reasons(decision)
    assert quiet(ticks.tick(*classic(b=50)))


def test_two_policies_of_one_engine_both_say_so() -> None:
    ticks = Ticks()
    policies = [policy("p", [frontend("fe-1", 60)]), policy("q", [frontend("fe-2", 60)])]
    ticks.tick([engine("a", 100)], policies)
    assert ticks.condition("CapacitySufficient", "ns/p")[0] == "False"
    assert ticks.condition("CapacitySufficient", "ns/q")[0] == "False"
