"""Prompt classes that come, move and go: each class begins with the weights that its lengths had."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_operator.snapshot.model import SavingSince
from headrace_operator.snapshot.signals import Reading, Signals
from headrace_operator.strategies.optimized import optimized
from support.operator_ticks import Ticks, quiet
from support.world import demand, engine, policy

PREFILL = {"perReplica": {"prefillTokensPerSecond": 20_000, "decodeTokensPerSecond": 1500}}
DECODE = {"perReplica": {"prefillTokensPerSecond": 12_000, "decodeTokensPerSecond": 3000}}
LENGTHS = (300.0, 1000.0, 3000.0)


def engines() -> list[Any]:
    return [engine("a", capacity=PREFILL), engine("b", capacity=DECODE)]


def sticky(cost: str) -> Any:
    return policy(objective={"moveCost": cost, "targetUtilizationPercent": 100})


def offered(*edges: int) -> Signals:
    """Nine requests a second; with edges, three in each class of the same whole."""
    if not edges:
        mean = Reading(value=sum(LENGTHS) / 3)
        return Signals(demand=(demand(rps=9.0, input_tokens=mean, output_tokens=Reading(value=100.0)),))
    parts = tuple(
        demand(rps=3.0, prompt_class=number, input_tokens=Reading(value=length), output_tokens=Reading(value=100.0))
        for number, length in enumerate(LENGTHS)
    )
    return Signals(class_edges=edges, demand=parts)


def classes(ticks: Ticks) -> list[dict[str, int]]:
    (model,) = ticks.tables["ns/p", "fe"].models
    return [{route.engine: route.weight for route in entry.routes if route.weight} for entry in model.classes]


def test_the_first_edges_move_nothing_that_they_need_not() -> None:
    """The optimizer's page, Sources: one class until 1,000 lengths were seen; then each inherits its weights."""
    ticks = Ticks()
    ticks.tick(engines(), [sticky("100s")], offered())
    (before,) = classes(ticks)
    assert len(before) == 2
    decision = ticks.tick(engines(), [sticky("100s")], offered(600, 2000))
    assert [table.class_edges for table in decision.tables] == [(600, 2000)]
    assert classes(ticks) == [before, before, before]
    assert decision.history == ()
    assert quiet(ticks.tick(engines(), [sticky("100s")], offered(600, 2000)))


def test_edges_that_move_take_the_weights_along() -> None:
    ticks = Ticks()
    ticks.tick(engines(), [sticky("0s")], offered(600, 2000))
    before = classes(ticks)
    assert before[0] != before[2]
    decision = ticks.tick(engines(), [sticky("100s")], offered(700, 2100))
    assert [table.class_edges for table in decision.tables] == [(700, 2100)]
    assert classes(ticks) == before


def test_classes_are_told_apart_where_hardware_differs() -> None:
    ticks = Ticks()
    ticks.tick(engines(), [sticky("0s")], offered(600, 2000))
    short, _, long = classes(ticks)
    assert short.get("ns/b", 0) > long.get("ns/b", 0)


def test_history_says_that_classes_came() -> None:
    ticks = Ticks()
    ticks.tick(engines(), [sticky("0s")], offered())
    (line,) = ticks.tick(engines(), [sticky("0s")], offered(600, 2000)).history
    assert "prompt classes 100 %" in line[1]


def test_edges_that_nobody_uses_write_nothing() -> None:
    """Edges follow everybody's lengths; where hardware is alike they are in no table."""
    alike = [engine("a", capacity=PREFILL), engine("b", capacity=PREFILL)]
    ticks = Ticks()
    ticks.tick(alike, [sticky("200ms")], offered())
    assert ticks.memory.last is not None
    assert quiet(ticks.tick(alike, [sticky("200ms")], offered(600, 2000)))
    assert quiet(ticks.tick(alike, [sticky("200ms")], offered(700, 2100)))
    assert ticks.memory.last.class_edges == ()


@pytest.mark.parametrize(("edges", "kept"), [((600, 2000), True), ((700, 2100), False)])
def test_since_when_a_move_saves_is_forgotten_with_its_class(edges: tuple[int, ...], kept: bool) -> None:
    ticks = Ticks(warm=False)
    ticks.tick(engines(), [sticky("5s")], offered(600, 2000))
    saving = SavingSince(policy="ns/p", frontend="fe", model="m", prompt_class=0, engine="ns/a", since=ticks.at - 50)
    seen = []

    def solve(snapshot: Any, policies: Any, fixed: Any) -> Any:
        seen.append(snapshot.savings)
        return optimized(snapshot, policies, fixed)

    ticks.memory = msgspec.structs.replace(ticks.memory, savings=(saving,))
    ticks.tick(engines(), [sticky("5s")], offered(*edges), solve=solve)
    assert bool(seen[0]) is kept
