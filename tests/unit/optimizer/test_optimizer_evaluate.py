"""What strategies that set weights by rule get: the pairs to choose from, and what their choice amounts to."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace_operator.optimizer import eligible_pairs, evaluate, ineligible_pairs, overloaded, solve
from headrace_operator.snapshot.model import PreviousRoute, SavingSince, SourceKey
from support.fleet import CHAT, classic, demand, engine, flows_of, previous, shed_of


def savings_of(routes: tuple[PreviousRoute, ...]) -> tuple[SavingSince, ...]:
    """A saving for each route, since 7 s."""
    return tuple(
        SavingSince(
            policy=entry.policy,
            frontend=entry.frontend,
            model=entry.model,
            prompt_class=0,
            engine=entry.engine,
            since=7.0,
        )
        for entry in routes
    )


def source(front: str) -> SourceKey:
    return SourceKey(CHAT[0], front, "m", 0)


def test_eligible_pairs_carry_work_distance_and_capacity() -> None:
    pairs = {(pair.source.frontend, pair.engine): pair for pair in eligible_pairs(classic(), CHAT)}
    assert len(pairs) == 9
    assert list(pairs) == sorted(pairs)
    found = pairs["b", "default/c"]
    assert (found.work, found.round_trip, found.unloaded) == pytest.approx((1 / 80, 0.040, 0.100))
    assert (found.capacity, found.effective) == (1.0, 1.0)


def test_ineligible_pairs_name_their_rule() -> None:
    engines = (engine("a"), engine("b", alive=False), engine("c", rate=None))
    found = {
        (pair.source.frontend, pair.engine): pair.reason for pair in ineligible_pairs(classic(engines=engines), CHAT)
    }
    assert found == {(f, f"default/{e}"): r for f in "abc" for e, r in (("b", "Down"), ("c", "CapacityUnknown"))}


def test_a_rules_flows_become_loads_in_flight_and_a_cost() -> None:
    flows = {(source("a"), "default/a"): 90.0, (source("b"), "default/b"): 120.0, (source("c"), "default/c"): 40.0}
    solution = evaluate(classic(), CHAT, flows)
    assert solution.status == "Rule"
    assert {entry.engine: entry.load for entry in solution.engines} == pytest.approx(
        {"default/a": 0.9, "default/b": 1.2, "default/c": 0.5}
    )
    assert solution.engines[0].in_flight == ((CHAT[0], "a", pytest.approx(90 * 0.101)),)
    assert all(entry.price == 0 for entry in solution.sources)
    assert len(solution.routes) == 9
    assert solution.objective > solve(classic(), CHAT).objective


def test_the_optimums_own_flows_evaluate_to_the_optimums_own_cost() -> None:
    best = solve(classic(), CHAT)
    again = evaluate(classic(), CHAT, {(route.source, route.engine): route.flow for route in best.routes})
    assert again.objective == pytest.approx(best.objective)
    assert flows_of(again) == pytest.approx(flows_of(best))
    assert [entry.in_flight for entry in again.engines] == [entry.in_flight for entry in best.engines]


def test_what_is_not_routed_is_shed_lowest_priority_first() -> None:
    shares = (("batch", 1, 0.25), ("interactive", 2, 0.75))
    sources = tuple(demand(front, rate, priorities=shares) for front, rate in (("a", 90), ("b", 120), ("c", 40)))
    solution = evaluate(classic(demand=sources), CHAT, {(source("a"), "default/a"): 60.0})
    assert dict(solution.sources[0].shed) == pytest.approx({"batch": 22.5, "interactive": 7.5})
    assert shed_of(solution) == pytest.approx({"a": 30, "b": 120, "c": 40})


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0])
def test_flows_that_make_no_sense_are_left_out_and_named(amount: float) -> None:
    flows = {(source("a"), "default/a"): amount, (source("b"), "default/b"): 1.0}
    solution = evaluate(classic(), CHAT, flows)
    assert flows_of(solution) == {("b", "b"): 1.0}
    assert solution.message == "not eligible, left out: a to default/a"


def test_flows_to_engines_out_of_reach_are_left_out_and_named() -> None:
    flows = {(source("a"), "default/none"): 5.0, (source("x"), "default/a"): 5.0}
    assert evaluate(classic(), CHAT, flows).message == "not eligible, left out: a to default/none, x to default/a"


def test_movement_against_the_weights_in_force_is_counted() -> None:
    snapshot = classic(previous=previous({("a", "b"): 1.0, ("b", "b"): 1.0, ("c", "c"): 1.0}))
    solution = evaluate(snapshot, CHAT, {(source("a"), "default/a"): 90.0, (source("b"), "default/b"): 120.0})
    moved = {(route.source.frontend, route.engine): route.moved for route in solution.routes if route.moved}
    assert moved == pytest.approx({("a", "default/a"): 90})


def test_others_load_counts() -> None:
    solution = evaluate(classic(), CHAT, {}, fixed={"default/a": 0.4})
    assert (solution.engines[0].load, solution.engines[0].fixed) == (0.4, 0.4)


@pytest.mark.parametrize(
    ("rate", "deviation", "expected"),
    [(120, 0.0, False), (160, 0.0, True), (160, 10.0, False), (160, 4.0, True)],
)
def test_overload_is_demand_less_two_deviations_above_the_reachable_capacity(
    rate: float, deviation: float, expected: bool
) -> None:
    """A carries 90 + 40 of 280; B may have 150."""
    sources = (
        demand("a", 90, origin="Measured"),
        demand("b", rate, origin="Measured", deviation=deviation),
        demand("c", 40, origin="Measured"),
    )
    assert overloaded(classic(demand=sources), CHAT) is expected


def test_overload_needs_an_engine_that_could_carry_more() -> None:
    """Sources without any engine are refused for another reason; that is not a lack of capacity."""
    assert not overloaded(classic(engines=()), CHAT)
    dead = tuple(engine(name, alive=False) for name in "abc")
    assert not overloaded(classic(engines=dead), CHAT)


def test_overload_counts_others_load() -> None:
    assert not overloaded(classic(), CHAT, fixed={"default/a": 0.05})
    assert overloaded(classic(), CHAT, fixed={"default/a": 0.5, "default/c": 0.5})


def test_solving_writes_nothing_on_standard_output() -> None:
    """The solver's library greets on file descriptor 1 once a process; embedders and shells that print JSON see none.

    https://github.com/ERGO-Code/HiGHS/issues/1702
    """
    program = (
        "from support.fleet import CHAT, classic\n"
        "from headrace_operator.optimizer import WarmModel, solve\n"
        "assert solve(classic(), CHAT).status == 'Optimal'\n"
        "WarmModel().assess(classic(), CHAT)\n"
    )
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env={**os.environ, "PYTHONPATH": tests}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_snapshot_that_changed_is_read_anew() -> None:
    """Round trips are cached by the tuple they stand in, never by their names alone."""
    from headrace_operator.optimizer.layout import build_layout
    from headrace_operator.optimizer.readings import Reader

    snapshot = classic()
    reader = Reader(build_layout(snapshot, CHAT))
    first = reader.read(snapshot).round_trip
    slower = tuple(msgspec.structs.replace(pair, round_trip=pair.round_trip * 2) for pair in snapshot.network)
    assert (reader.read(msgspec.structs.replace(snapshot, network=slower)).round_trip == 2 * first).all()
    assert (reader.read(snapshot).round_trip == first).all()
    stranger = previous({("nobody", "a"): 0.5, ("a", "nothing"): 0.25, ("b", "a"): 0.125})
    told = reader.read(msgspec.structs.replace(snapshot, previous=stranger, savings=savings_of(stranger)))
    assert told.previous.sum() == 0.125
    assert told.previous_elsewhere.tolist() == [0.25, 0.0, 0.0]
    assert (told.saving_since < 1e9).sum() == 1
    foreign = (
        *snapshot.network,
        msgspec.structs.replace(snapshot.network[0], engine="default/unknown", round_trip=9.0),
    )
    assert (reader.read(msgspec.structs.replace(snapshot, network=foreign)).round_trip == first).all()
