"""Demand: measured, held, declared, else one per cent of what could carry it; never zero.

Case STA-01 (https://github.com/llm-d/llm-d-router/pull/2848): nothing unknown counts as zero.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from headrace_operator.snapshot.build_demand import class_of, middle_of_class
from headrace_operator.snapshot.model import SourceDemand
from headrace_operator.snapshot.signals import DemandSignal, Reading, Share, Signals
from support.world import demand, engine, frontend, policy, snapshot

MIXED = {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 4000}}
OTHER = {"perReplica": {"prefillTokensPerSecond": 20000, "decodeTokensPerSecond": 8000}}


def sources(signals: Signals | None = None, *, policies: Any = None, engines: Any = None) -> tuple[SourceDemand, ...]:
    return snapshot(engines or [engine()], policies or [policy()], signals).demand


def signals(*entries: DemandSignal, **more: Any) -> Signals:
    return Signals(demand=entries, **more)


@pytest.mark.parametrize(
    ("signal", "rate", "origin"),
    [
        pytest.param(demand(rps=7), 7, "Measured", id="measured"),
        pytest.param(demand(rps=0), 0.01, "Measured", id="a measured zero is one"),
        pytest.param(demand(rps=7, age=90), 7, "Held", id="held"),
        pytest.param(demand(rps=7, age=900), 10, "Declared", id="too old"),
        pytest.param(demand(rps=nan), 10, "Declared", id="nan"),
        pytest.param(demand(rps=inf), 10, "Declared", id="infinite"),
        pytest.param(demand(rps=-1), 10, "Declared", id="negative"),
        pytest.param(demand("elsewhere"), 10, "Declared", id="of another front-end"),
    ],
)
def test_order(signal: DemandSignal, rate: float, origin: str) -> None:
    (found,) = sources(signals(signal))
    assert (found.requests_per_second, found.origin) == (rate, origin)


def test_what_is_known_of_nobody_is_one_percent_and_never_sheds() -> None:
    found = snapshot([engine(replicas=3)], [policy(frontends=[frontend(rps=None)])])
    (source,) = found.demand
    assert (source.requests_per_second, source.origin) == (pytest.approx(3.0), "Unknown")
    assert source.requests_per_second - 2 * source.deviation < 0
    assert any("DemandUnknown" in note and "3 requests/s" in note for note in found.notes)


def test_unknown_demand_without_any_engine_or_figure() -> None:
    (source,) = sources(policies=[policy(frontends=[frontend(rps=None)])], engines=[engine(state="Disabled")])
    assert source.requests_per_second == 0.01
    broken = engine(capacity={"perReplica": {"requestsPerSecond": 0}})
    (source,) = sources(policies=[policy(frontends=[frontend(rps=None)])], engines=[broken])
    assert source.requests_per_second == 0.01


def test_unknown_demand_of_an_adapter_is_the_least() -> None:
    engines = [engine(models=[{"name": "m", "adapters": ["x"]}])]
    found = sources(policies=[policy(frontends=[frontend(rps=None)])], engines=engines)
    assert [(entry.model, entry.requests_per_second) for entry in found] == [("m", 1.0), ("x", 0.01)]


def test_thresholds_are_the_policys() -> None:
    strict = policy(staleness={"hold": "5s", "degrade": "10s"})
    assert sources(signals(demand(rps=7, age=8)), policies=[strict])[0].origin == "Held"
    assert sources(signals(demand(rps=7, age=12)), policies=[strict])[0].origin == "Declared"


def test_deviation_is_taken_and_an_odd_one_is_none() -> None:
    assert sources(signals(demand(deviation=2.5)))[0].deviation == 2.5
    assert sources(signals(demand(deviation=nan)))[0].deviation == 0.0


@pytest.mark.parametrize(
    ("models", "shares", "expected"),
    [
        pytest.param(["m"], [], {"m": 10.0}, id="one model"),
        pytest.param(["m", "n"], [], {"m": 5.0, "n": 5.0}, id="equal"),
        pytest.param(["m", "n"], [("m", 30), ("n", 70)], {"m": 3.0, "n": 7.0}, id="listed"),
        pytest.param(["m", "n"], [("m", 30), ("n", 30)], {"m": 5.0, "n": 5.0}, id="listed, not 100 in all"),
        pytest.param(["m", "n"], [("m", 100)], {"m": 10.0, "n": 0.01}, id="one not listed"),
        pytest.param(["m", "n"], [("m", 0)], {"m": 5.0, "n": 5.0}, id="zeros say nothing"),
    ],
)
def test_declared_by_model(models: list[str], shares: list[tuple[str, int]], expected: dict[str, float]) -> None:
    listed = [{"name": name, "percent": percent} for name, percent in shares]
    front = frontend(demand={"models": listed})
    engines = [engine(name, models=[{"name": name}]) for name in models]
    found = sources(policies=[policy(frontends=[front], models=[{"name": name} for name in models])], engines=engines)
    assert {entry.model: entry.requests_per_second for entry in found} == expected


PRIORITIES = {"shedding": {"priorities": [{"name": "high", "value": 100}, {"name": "low", "value": 1}]}}


@pytest.mark.parametrize(
    ("measured", "declared", "expected"),
    [
        pytest.param([], [], {"low": 1.0, "high": 0.0}, id="none: all lowest"),
        pytest.param([], [("high", 25), ("low", 75)], {"low": 0.75, "high": 0.25}, id="declared"),
        pytest.param([("high", 0.5), ("low", 0.5)], [("low", 100)], {"low": 0.5, "high": 0.5}, id="measured wins"),
        pytest.param([("high", 0.2), ("stranger", 0.6)], [], {"low": 0.75, "high": 0.25}, id="unknown is the lowest"),
        pytest.param([("high", nan), ("low", 0.5)], [], {"low": 1.0, "high": 0.0}, id="nan"),
        pytest.param([("high", 0.0)], [], {"low": 1.0, "high": 0.0}, id="nothing counted"),
    ],
)
def test_priorities(
    measured: list[tuple[str, float]], declared: list[tuple[str, int]], expected: dict[str, float]
) -> None:
    front = frontend(demand={"priorities": [{"name": name, "percent": percent} for name, percent in declared]})
    shares = tuple(Share(name=name, share=share) for name, share in measured)
    found = sources(signals(demand(priorities=shares)), policies=[policy(frontends=[front], protection=PRIORITIES)])
    assert [(name, value) for name, value, _ in found[0].priorities] == [("low", 1), ("high", 100)]
    assert {name: pytest.approx(share) for name, _, share in found[0].priorities} == expected


def test_without_priorities_there_is_one() -> None:
    assert sources()[0].priorities == (("default", 0, 1.0),)


@pytest.mark.parametrize(
    ("declared", "tokens_in", "tokens_out", "expected"),
    [
        pytest.param({}, None, None, (0, 0), id="nothing known: the engines' reference"),
        pytest.param({"inputTokens": 500, "outputTokens": 50}, None, None, (500, 50), id="declared"),
        pytest.param({"inputTokens": 500, "outputTokens": 50}, 700, None, (700, 50), id="one of them measured"),
        pytest.param({}, 700, 70, (700, 70), id="measured"),
        pytest.param({}, 700, None, (700, 100), id="the other from the reference mixes"),
        pytest.param({}, None, 70, (400, 70), id="the input from the reference mixes"),
    ],
)
def test_tokens(
    declared: dict[str, int], tokens_in: float | None, tokens_out: float | None, expected: tuple[float, float]
) -> None:
    engines = [
        engine("a", profile={"reference": {"inputTokens": 300, "outputTokens": 150}}),
        engine("b", profile={"reference": {"inputTokens": 500, "outputTokens": 50}}),
        engine("c"),
    ]
    signal = demand(
        input_tokens=None if tokens_in is None else Reading(value=tokens_in),
        output_tokens=None if tokens_out is None else Reading(value=tokens_out),
    )
    found = sources(signals(signal), policies=[policy(frontends=[frontend(demand=declared)])], engines=engines)
    assert (found[0].input_tokens, found[0].output_tokens) == expected


def test_tokens_without_any_reference() -> None:
    found = sources(signals(demand(input_tokens=Reading(value=700))))
    assert (found[0].input_tokens, found[0].output_tokens) == (700, 220)


def test_shadow_sees_the_demand_of_its_models() -> None:
    policies = [policy("p"), policy("s", mode="Shadow")]
    found = sources(signals(demand(rps=7)), policies=policies)
    assert {entry.policy: entry.requests_per_second for entry in found} == {"ns/p": 7, "ns/s": 7}


def test_its_own_signal_comes_before_others() -> None:
    found = sources(signals(demand(rps=7), demand(rps=3, policy="ns/old")))
    assert [entry.requests_per_second for entry in found] == [7]


def classes(*rates: tuple[int | None, float], **more: Any) -> Signals:
    entries = tuple(
        demand(rps=rate, prompt_class=number, input_tokens=Reading(value=1000.0), output_tokens=Reading(value=100.0))
        for number, rate in rates
    )
    return signals(*entries, class_edges=(600, 1500), **more)


def test_prompt_classes_where_hardware_differs() -> None:
    engines = [engine("a", capacity=MIXED | {}, replicas=1), engine("b", capacity=OTHER)]
    found = sources(classes((0, 4), (2, 6)), engines=engines)
    assert [(entry.prompt_class, entry.requests_per_second, entry.input_tokens) for entry in found] == [
        (0, 4, 1000),
        (1, 0.01, 1050),
        (2, 6, 1000),
    ]


@pytest.mark.parametrize(
    "engines",
    [
        pytest.param([engine("a"), engine("b")], id="nobody states prefill and decode"),
        pytest.param([engine("a", capacity=MIXED), engine("b", capacity=MIXED)], id="alike"),
        pytest.param([engine("a", state="Disabled")], id="no engine"),
    ],
)
def test_one_class_where_classes_bring_nothing(engines: Any) -> None:
    found = sources(classes((0, 4), (1, 6)), engines=engines)
    assert [(entry.prompt_class, entry.requests_per_second) for entry in found] == [(0, 10)]


def test_classes_stay_where_only_some_engines_state_their_costs() -> None:
    engines = [engine("a", capacity=MIXED), engine("b")]
    assert len(sources(classes((0, 4), (1, 6)), engines=engines)) == 3


def test_a_signal_without_a_class_is_told_by_its_length() -> None:
    engines = [engine("a", capacity=MIXED), engine("b", capacity=OTHER)]
    found = sources(classes((None, 4), (9, 6)), engines=engines)
    assert [(entry.prompt_class, entry.requests_per_second) for entry in found] == [(0, 0.01), (1, 10), (2, 0.01)]


def test_a_length_nobody_knows_is_in_the_class_of_the_reference() -> None:
    engines = [engine("a", capacity=MIXED), engine("b", capacity=OTHER)]
    found = sources(signals(demand(rps=5), class_edges=(600, 1500)), engines=engines)
    assert [(entry.prompt_class, entry.requests_per_second) for entry in found] == [(0, 0.01), (1, 5), (2, 0.01)]


def test_several_readings_of_one_stream_add_up() -> None:
    one = demand(rps=6, deviation=3.0, input_tokens=Reading(value=100), output_tokens=Reading(value=10))
    other = demand(rps=2, deviation=4.0, age=90, input_tokens=Reading(value=500), output_tokens=Reading(value=50))
    (found,) = sources(signals(one, other))
    assert (found.requests_per_second, found.deviation, found.origin) == (8, 5.0, "Held")
    assert (found.input_tokens, found.output_tokens) == (200, 20)


def test_several_readings_of_nothing() -> None:
    one = demand(rps=0, input_tokens=Reading(value=100), output_tokens=Reading(value=10))
    other = demand(rps=0, input_tokens=Reading(value=300), output_tokens=Reading(value=30))
    (found,) = sources(signals(one, other))
    assert (found.requests_per_second, found.input_tokens) == (0.01, 200)


def test_demand_nobody_rules_is_named() -> None:
    found = snapshot([engine()], [policy()], signals(demand(model="n"), demand("fe-9")))
    assert "signals of demand for n at fe: no policy rules it; ignored" in found.notes
    assert "signals of demand for m at fe-9: no policy rules it; ignored" in found.notes


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0), (599, 0), (600, 1), (1499, 1), (1500, 2), (1e9, 2)])
def test_class_of(tokens: float, expected: int) -> None:
    assert class_of(tokens, (600, 1500)) == expected


def test_middles() -> None:
    assert [middle_of_class(index, (600, 1500)) for index in range(3)] == [300, 1050, 1500]
