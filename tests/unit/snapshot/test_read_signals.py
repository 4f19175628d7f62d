"""A signals file: every fault of form is told, a number that nobody can have measured costs one value.

Case LP-04: https://github.com/coin-or/pulp/issues/855 (one NaN must not stop the other engines).
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from headrace_operator.snapshot.read_signals import load_signals
from headrace_operator.snapshot.signals import Reading, Signals


def read(data: Any) -> Signals:
    found = load_signals(data)
    assert isinstance(found, Signals), found
    return found


def test_nothing_is_nothing_measured() -> None:
    assert read(None) == Signals()
    assert read({}) == Signals()


def test_all_parts() -> None:
    found = read(
        {
            "at": "2026-11-29T12:00:00Z",
            "classEdges": [600, 1500],
            "demand": [{"policy": "ns/p", "frontend": "fe", "model": "m", "requestsPerSecond": {"value": 1, "age": 2}}],
            "roundTrips": [{"frontend": "fe", "engine": "ns/a", "seconds": {"value": 0.01}}],
            "engines": [{"engine": "ns/a", "readyReplicas": {"value": 3}, "alive": True}],
            "states": [{"name": "engine ns/a", "state": "Held"}],
            "routers": [["fe", 2]],
            "bytesPerToken": [["m", 3.9]],
        }
    )
    assert found.demand[0].requests_per_second == Reading(value=1, age=2)
    assert found.engines[0].alive is True
    assert found.round_trips[0].seconds.value == 0.01
    assert found.states[0].state == "Held"
    assert (found.class_edges, found.routers, found.bytes_per_token) == ((600, 1500), (("fe", 2),), (("m", 3.9),))


@pytest.mark.parametrize("value", [nan, inf, -inf, -1, -0.5])
def test_a_value_that_is_no_measurement_is_left_out_alone(value: float) -> None:
    found = read(
        {
            "engines": [
                {"engine": "ns/a", "ttft": {"value": value}, "readyReplicas": {"value": 3}},
                {"engine": "ns/b", "ttft": {"value": 0.2}},
            ]
        }
    )
    assert found.engines[0].ttft is None
    assert found.engines[0].ready_replicas == Reading(value=3)
    assert found.engines[1].ttft == Reading(value=0.2)
    assert [(state.name, state.state) for state in found.states] == [(f"engine ns/a ttft ({value})", "Unknown")]


def test_an_entry_without_its_measurement_is_left_out() -> None:
    found = read(
        {
            "demand": [{"policy": "ns/p", "frontend": "fe", "model": "m", "requestsPerSecond": {"value": nan}}],
            "roundTrips": [{"frontend": "fe", "engine": "ns/a", "seconds": {"value": -1}}],
        }
    )
    assert (found.demand, found.round_trips) == ((), ())
    assert sorted(state.name for state in found.states) == [
        "demand ns/p fe m requestsPerSecond (nan)",
        "round trip fe ns/a seconds (-1)",
    ]


def test_every_fault_of_form_in_one_run() -> None:
    found = load_signals(
        {
            "engines": [{"engine": "ns/a", "ttft": {"value": "fast"}}, {"engine": 3}, "ns/b"],
            "demand": {"policy": "ns/p"},
            "roundTrips": [{"frontend": "fe"}],
        }
    )
    assert isinstance(found, tuple)
    assert [fault.split(":")[0] for fault in found] == [
        "signals.engines[0].ttft.value",
        "signals.engines[1].engine",
        "signals.engines[2]",
        "signals.demand",
        "signals.roundTrips[0]",
    ]


@pytest.mark.parametrize("data", [[], "text", 3, {"enginess": []}, {"at": 3}, {"classEdges": "none"}])
def test_wrong_form(data: Any) -> None:
    found = load_signals(data)
    assert isinstance(found, tuple)
    assert found[-1].startswith(("signals:", "signals.at: 3:", "signals.classEdges: 'none':"))


def test_a_truth_value_is_no_number() -> None:
    assert isinstance(load_signals({"engines": [{"engine": "ns/a", "ttft": {"value": True}}]}), tuple)
