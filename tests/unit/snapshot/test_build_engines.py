"""Engines' states: replicas and where they come from, liveness, factors, break-glass.

Case STA-01 (https://github.com/llm-d/llm-d-router/pull/2848): an engine nobody read is unknown, neither idle nor dead.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from headrace_operator.snapshot.background import with_background
from headrace_operator.snapshot.build_engines import engine_states
from headrace_operator.snapshot.model import EngineState
from headrace_operator.snapshot.signals import EngineSignal, Factor, Reading
from support.world import AT, engine, measured

DRAIN = "headrace.dev/drain-until"


def one(spec: Any, signal: EngineSignal | None = None, elapsed: float = 0.0) -> tuple[EngineState, list[str]]:
    notes: list[str] = []
    states = engine_states([spec], [signal] if signal else [], at=AT, elapsed=elapsed, notes=notes)
    return states[0], notes


@pytest.mark.parametrize(
    ("spec", "signal", "ready", "origin", "noted"),
    [
        pytest.param(engine(replicas=4), None, 4, "Declared", False, id="declared"),
        pytest.param(engine(replicas=0), None, 0, "Declared", False, id="declared zero is zero"),
        pytest.param(
            engine(replicas=None, endpoints={"urls": ["http://a", "http://b"]}), None, 2, "Default", True, id="per url"
        ),
        pytest.param(
            engine(replicas=None, endpoints={"urls": [], "service": {"name": "s", "port": 80}}),
            None,
            1,
            "Default",
            True,
            id="a Service nobody counted",
        ),
        pytest.param(
            engine(replicas=4), measured("a", ready_replicas=Reading(value=3)), 3, "Measured", False, id="measured"
        ),
        pytest.param(
            engine(replicas=4), measured("a", ready_replicas=Reading(value=0)), 0, "Measured", False, id="measured zero"
        ),
        pytest.param(
            engine(replicas=4), measured("a", ready_replicas=Reading(value=3, age=90)), 3, "Held", True, id="held"
        ),
        pytest.param(
            engine(replicas=4), measured("a", ready_replicas=Reading(value=3, age=900)), 4, "Declared", True, id="old"
        ),
        pytest.param(
            engine(replicas=4), measured("a", ready_replicas=Reading(value=nan)), 4, "Declared", True, id="nan"
        ),
        pytest.param(
            engine(replicas=4), measured("a", ready_replicas=Reading(value=1e11)), 1e6, "Measured", False, id="huge"
        ),
    ],
)
def test_replicas(spec: Any, signal: EngineSignal | None, ready: float, origin: str, noted: bool) -> None:
    state, notes = one(spec, signal)
    assert (state.ready, state.ready_origin) == (ready, origin)
    assert bool(notes) == noted


@pytest.mark.parametrize(("alive", "expected"), [(None, True), (True, True), (False, False)])
def test_only_a_seen_death_is_one(alive: bool | None, expected: bool) -> None:
    assert one(engine(), measured("a", alive=alive))[0].alive is expected


def test_an_engine_nobody_read_is_neutral() -> None:
    state, notes = one(engine(replicas=2))
    assert (state.alive, state.hit_share, state.trim.value, state.penalty.value) == (True, 0.0, 1.0, 1.0)
    assert notes == []


@pytest.mark.parametrize("value", [nan, inf, -0.5, 2.5])
def test_a_factor_that_is_none(value: float) -> None:
    state, notes = one(engine(), measured("a", trim=Factor(value=value)))
    assert state.trim.value == 1.0
    assert len(notes) == 1


def test_factors_and_hits_are_taken() -> None:
    signal = measured("a", penalty=Factor(value=0.4, reason="slow"), hit_share=Reading(value=1.7))
    state, _ = one(engine(), signal)
    assert (state.penalty.value, state.penalty.reason, state.hit_share) == (0.4, "slow", 1.0)


def test_an_unreadable_hit_share_is_named() -> None:
    state, notes = one(engine(), measured("a", hit_share=Reading(value=nan)))
    assert state.hit_share == 0.0
    assert notes == ["prefix-hit share of ns/a: nan (age 0.0 s) is no measurement; unknown"]


@pytest.mark.parametrize(
    ("until", "state", "noted"),
    [
        pytest.param("2026-11-29T13:00:00Z", "Draining", False, id="in force"),
        pytest.param("2026-11-29T12:00:00Z", "Active", False, id="expired just now"),
        pytest.param("2026-11-30T12:00:01Z", "Active", True, id="more than a day ahead"),
        pytest.param("soon", "Active", True, id="no time"),
    ],
)
def test_drain(until: str, state: str, noted: bool) -> None:
    annotations = {DRAIN: until, "headrace.dev/why": " new driver "}
    found, notes = one(engine(metadata={"annotations": annotations}))
    assert found.state == state
    drained = f"a is drained until {until}: new driver" if state == "Draining" else ""
    assert found.message == (notes[0] if noted else drained)
    assert bool(notes) == noted


def test_a_why_is_one_line_of_text() -> None:
    annotations = {DRAIN: "2026-11-29T13:00:00Z", "headrace.dev/why": " a\n- b:\u2028\x1b[2J\x00 c "}
    found, _ = one(engine(metadata={"annotations": annotations}))
    assert found.message == "a is drained until 2026-11-29T13:00:00Z: a - b: ?[2J? c"


def test_drain_without_a_why_and_a_state_of_its_own() -> None:
    annotations = {"annotations": {DRAIN: "2026-11-29T13:00:00Z"}}
    assert one(engine(metadata=annotations))[0].message == "a is drained until 2026-11-29T13:00:00Z"
    disabled, _ = one(engine(state="Disabled", metadata=annotations))
    assert (disabled.state, disabled.message) == ("Disabled", "")


def test_signals_of_strangers_are_named() -> None:
    _, notes = one(engine(), measured("gone"))
    assert notes == ["signals of engine ns/gone: no such engine; ignored"]


@pytest.mark.parametrize(
    ("foreign", "whole", "background"),
    [
        pytest.param(Reading(value=20), Reading(value=50), 0.2, id="counted"),
        pytest.param(Reading(value=2), Reading(value=50), 0.0, id="within the noise"),
        pytest.param(Reading(value=900), Reading(value=950), 2.0, id="at most the replicas"),
        pytest.param(Reading(value=nan), Reading(value=50), 0.0, id="not known"),
        pytest.param(Reading(value=20), None, 0.0, id="the whole not known"),
    ],
)
def test_background(foreign: Reading, whole: Reading | None, background: float) -> None:
    state, _ = one(engine(replicas=2))
    other = msgspec_replace(state, id="ns/z")
    notes: list[str] = []
    found = with_background(
        [state, other], [measured("a", background=foreign, request_rate=whole)], elapsed=0.0, notes=notes
    )
    assert found[0].background == pytest.approx(background)
    assert found[1].background == 0.0


def test_background_of_an_engine_without_a_figure() -> None:
    state, _ = one(engine(capacity={"perReplica": {"requestsPerSecond": 0, "kvCacheTokens": 1}}))
    signal = measured("a", background=Reading(value=20), request_rate=Reading(value=50))
    assert with_background([state], [signal], elapsed=0.0, notes=[])[0].background == 0.0


def msgspec_replace(state: EngineState, **changes: Any) -> EngineState:
    import msgspec

    return msgspec.structs.replace(state, **changes)
