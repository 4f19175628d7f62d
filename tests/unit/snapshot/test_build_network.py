"""Round trips: listed pairs before rules, the most specific first, symmetric unless both directions stand."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from headrace_api.base import Location
from headrace_api.policy import Network, RoundTrip
from headrace_operator.snapshot.build_network import RoundTrips, unmeasured
from headrace_operator.snapshot.model import PreviousRoute
from headrace_operator.snapshot.signals import Reading, RoundTripSignal, Signals
from support.world import engine, frontend, policy, snapshot

HERE = Location(region="r1", zone="r1a", cluster="c1")


def network(*trips: tuple[str, str, str], **more: Any) -> RoundTrips:
    listed = tuple(RoundTrip(from_=one, to=other, latency=latency) for one, other, latency in trips)
    return RoundTrips(Network(round_trip=listed, **more))


@pytest.mark.parametrize(
    ("trips", "there", "seconds", "origin"),
    [
        pytest.param((), Location(region="r1", zone="r1a"), 0.0005, "Default", id="same zone"),
        pytest.param((), Location(zone="r1a"), 0.0005, "Default", id="same zone, region not stated"),
        pytest.param((), Location(region="r2", zone="r1a"), 0.15, "Default", id="a zone's name in another region"),
        pytest.param((), Location(region="r1"), 0.001, "Default", id="same region"),
        pytest.param((), Location(region="r2"), 0.15, "Default", id="elsewhere"),
        pytest.param((), Location(), 0.15, "Default", id="nowhere stated"),
        pytest.param((), Location(cluster="c1"), 0.15, "Default", id="a cluster alone is no place"),
        pytest.param((("r1", "r2", "40ms"),), Location(region="r2"), 0.04, "Declared", id="listed"),
        pytest.param((("r2", "r1", "40ms"),), Location(region="r2"), 0.04, "Declared", id="listed the other way"),
        pytest.param(
            (("r1", "r2", "40ms"), ("r2", "r1", "50ms")), Location(region="r2"), 0.04, "Declared", id="both ways"
        ),
        pytest.param(
            (("r1", "r2", "40ms"), ("c1", "r2", "7ms")), Location(region="r2"), 0.007, "Declared", id="cluster wins"
        ),
        pytest.param(
            (("r1", "c2", "40ms"), ("r1", "r2", "7ms")),
            Location(region="r2", cluster="c2"),
            0.04,
            "Declared",
            id="the engine's cluster wins",
        ),
        pytest.param((("r1", "r1", "3ms"),), Location(region="r1"), 0.003, "Declared", id="from and to the same"),
    ],
)
def test_rules(trips: tuple[tuple[str, str, str], ...], there: Location, seconds: float, origin: str) -> None:
    found = network(*trips)
    assert found.between(HERE, there) == (seconds, origin)
    assert found.between(HERE, there) == (seconds, origin)


def test_a_front_end_that_states_nothing_gets_the_default() -> None:
    assert network(default="20ms").between(Location(), Location(region="r1")) == (0.02, "Default")


def trips(*entries: tuple[str, str, Reading]) -> Signals:
    return Signals(
        round_trips=tuple(
            RoundTripSignal(frontend=one, engine=other, seconds=reading) for one, other, reading in entries
        )
    )


def test_measured_ones_count_where_the_policy_says_so() -> None:
    signals = trips(("fe", "ns/a", Reading(value=0.007)), ("fe", "ns/b", Reading(value=nan)))
    engines = [engine("a"), engine("b")]
    asked = snapshot(engines, [policy(network={"measured": True})], signals)
    assert [(pair.engine, pair.round_trip, pair.origin) for pair in asked.network] == [
        ("ns/a", 0.007, "Measured"),
        ("ns/b", 0.001, "Default"),
    ]
    assert any("no round trip measured for 1 pairs (fe to ns/b)" in note for note in asked.notes)
    assert any("round trip fe to ns/b" in note for note in asked.notes)
    declared = snapshot(engines, [policy()], signals)
    assert {pair.origin for pair in declared.network} == {"Default"}


def test_every_front_end_of_every_policy_has_its_pairs() -> None:
    policies = [policy("p", [frontend("fe-1"), frontend("fe-2")]), policy("q", [frontend("fe-3")])]
    found = snapshot([engine("a"), engine("b")], policies)
    assert [(pair.policy, pair.frontend, pair.engine) for pair in found.network] == [
        ("ns/p", "fe-1", "ns/a"),
        ("ns/p", "fe-1", "ns/b"),
        ("ns/p", "fe-2", "ns/a"),
        ("ns/p", "fe-2", "ns/b"),
        ("ns/q", "fe-3", "ns/a"),
        ("ns/q", "fe-3", "ns/b"),
    ]


def test_pairs_with_traffic_that_nobody_measures_are_named() -> None:
    engines = [engine(name, 10, region="r2") for name in "abc"]
    rules = [policy("p", [frontend("fe", 5)], network={"measured": True}), policy("q", [frontend("fe", 5)])]
    trips = (RoundTripSignal(frontend="fe", engine="ns/a", seconds=Reading(value=0.01)),)
    world = snapshot(engines, rules, Signals(round_trips=trips))
    routes = [
        PreviousRoute(policy=f"ns/{name}", frontend="fe", model="m", prompt_class=0, engine=f"ns/{to}", weight=weight)
        for name in "pq"
        for to, weight in (("a", 0.5), ("b", 0.5), ("c", 0.0))
    ]
    assert [state.name for state in unmeasured(world.policies, world.network, routes)] == ["round trip ns/p fe ns/b"]
    by_engine = {pair.engine: pair for pair in world.network if pair.policy == "ns/p"}
    assert (by_engine["ns/a"].round_trip, by_engine["ns/a"].origin) == (0.01, "Measured")
    assert by_engine["ns/b"].origin == "Default"
