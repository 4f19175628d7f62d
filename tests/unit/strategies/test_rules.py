"""Strategies: what each rule sends where, in which order policies burden engines, and what is refused with a word."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from headrace_api.engine import InferenceEngine
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import Reading, Signals
from headrace_operator.strategies.base import ComponentResult
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.run import fixed_for, rerun, run_strategies
from support.world import demand, engine, frontend, measured, policy, snapshot

ENGINES = [engine("a", 20, replicas=3, region="r1"), engine("b", 20, replicas=1, region="r2")]


def table(routes: Mapping[str, int], *, policy: str = "p") -> RoutingTable:
    entry = ClassRoutes(routes=tuple(Route(engine=f"ns/{name}", weight=weight) for name, weight in routes.items()))
    return RoutingTable(
        schema_version=1,
        identity=Identity(uid="u", term=1, revision=1),
        policy=policy,
        policy_namespace="ns",
        frontend="fe",
        issued="",
        hash="",
        models=(ModelRoutes(model="m", classes=(entry,)),),
        engines=(),
    )


def flows(result: ComponentResult) -> dict[str, float]:
    return {route.engine.removeprefix("ns/"): round(route.flow, 6) for route in result.solution.routes}


def only(world: Snapshot) -> ComponentResult:
    (result,) = run_strategies(world)
    return result


@pytest.mark.parametrize(
    ("strategy", "region", "engines", "expected"),
    [
        pytest.param("Nearest", "r1", ENGINES, {"a": 12, "b": 0}, id="nearest"),
        pytest.param("Nearest", "r3", ENGINES, {"a": 9, "b": 3}, id="ties by ready replicas"),
        pytest.param("RoundRobin", "r1", ENGINES, {"a": 6, "b": 6}, id="equal"),
        pytest.param("Static", "r1", ENGINES, {"a": 9, "b": 3}, id="by declared capacity"),
    ],
)
def test_shares(strategy: str, region: str, engines: list[InferenceEngine], expected: dict[str, float]) -> None:
    world = snapshot(engines, [policy(frontends=[frontend(rps=12, region=region)], strategy={"type": strategy})])
    result = only(world)
    assert flows(result) == expected
    assert (result.strategy, result.shadow, result.solution.status) == (strategy, False, "Rule")


def test_static_does_not_look_at_what_is_measured() -> None:
    signals = Signals(engines=(measured("a", ready_replicas=Reading(value=1)),))
    world = snapshot(ENGINES, [policy(frontends=[frontend(rps=12)], strategy={"type": "Static"})], signals)
    assert flows(only(world)) == {"a": 9, "b": 3}


def test_static_takes_ready_endpoints_of_a_service_that_declares_none() -> None:
    service = {"endpoints": {"urls": [], "service": {"name": "s", "port": 80}}}
    engines = [engine("a", 20, replicas=None, **service), engine("b", 20)]
    signals = Signals(engines=(measured("a", ready_replicas=Reading(value=3)),))
    world = snapshot(engines, [policy(frontends=[frontend(rps=12)], strategy={"type": "Static"})], signals)
    assert flows(only(world)) == {"a": 9, "b": 3}


def test_static_without_a_declared_replica_is_equal() -> None:
    signals = Signals(engines=tuple(measured(name, ready_replicas=Reading(value=2)) for name in "ab"))
    engines = [engine("a", replicas=0), engine("b", replicas=0)]
    world = snapshot(engines, [policy(frontends=[frontend(rps=12)], strategy={"type": "Static"})], signals)
    assert flows(only(world)) == {"a": 6, "b": 6}


def test_a_rule_never_sheds_and_counts_up_to_capacity() -> None:
    policies = [
        policy("p1", [frontend("fe-1", 50)], strategy={"type": "Nearest"}),
        policy("p2", [frontend("fe-2", 10)]),
    ]
    world = snapshot([engine("a", 20, region="r1"), engine("b", 20, region="r2")], policies)
    rule, solved = run_strategies(world)
    assert flows(rule) == {"a": 50, "b": 0}
    assert all(amount == 0 for source in rule.solution.sources for _, amount in source.shed)
    assert fixed_for(world, (rule, solved)) == {"ns/a": 1.0}
    assert flows(solved) == {"a": 0, "b": 10}


def test_rules_see_each_others_load() -> None:
    policies = [
        policy("p1", [frontend("fe-1", 5)], strategy={"type": "Nearest"}),
        policy("p2", [frontend("fe-2", 5)], strategy={"type": "RoundRobin"}),
    ]
    results = run_strategies(snapshot([engine("a", 20)], policies))
    assert [result.solution.engines[0].load for result in results] == [pytest.approx(0.5), pytest.approx(0.5)]


def test_shadow_is_solved_alone_over_the_load_of_the_others() -> None:
    engines = [engine("a", 20, region="r1"), engine("b", 20, region="r2")]
    objective = {"targetUtilizationPercent": 100}
    policies = [
        policy("p1", [frontend("fe-1", 19)], objective=objective),
        policy("p2", [frontend("fe-2", 5)], objective=objective, mode="Shadow"),
        policy("p3", [frontend("fe-3", 4)], strategy={"type": "RoundRobin"}, mode="Shadow"),
    ]
    results = run_strategies(snapshot(engines, policies))
    assert [(result.policies, result.shadow) for result in results] == [
        (("ns/p1",), False),
        (("ns/p2",), True),
        (("ns/p3",), True),
    ]
    assert flows(results[0]) == {"a": 19, "b": 0}
    assert flows(results[1]) == {"a": 1, "b": 4}
    assert flows(results[2]) == {"a": 2, "b": 2}


def test_feedback_is_refused_with_a_word() -> None:
    result = only(snapshot(ENGINES, [policy(strategy={"type": "Feedback"})]))
    assert result.solution.status == "Failed"
    assert "not available" in result.solution.message
    assert "Optimized, Nearest, RoundRobin or Static" in result.solution.message


def test_what_failed_still_burdens_with_its_last_table() -> None:
    policies = [
        policy("p1", [frontend(rps=19)], strategy={"type": "Feedback"}),
        policy("p2", [frontend("fe-2", 5)], mode="Shadow", objective={"targetUtilizationPercent": 100}),
    ]
    engines = [engine("a", 20, region="r1"), engine("b", 20, region="r2")]
    world = snapshot(engines, policies, previous=[table({"a": 10_000}, policy="p1")])
    failed, shadow = run_strategies(world)
    assert failed.solution.status == "Failed"
    assert flows(shadow) == {"a": 1, "b": 4}


FROZEN = {"annotations": {"headrace.dev/freeze-until": "2026-11-29T13:00:00Z"}}


def test_a_frozen_policy_keeps_its_weights_and_burdens_the_others() -> None:
    policies = [
        policy("p1", [frontend(rps=19)], metadata=FROZEN),
        policy("p2", [frontend("fe-2", 5)], objective={"targetUtilizationPercent": 100}),
    ]
    engines = [engine("a", 20, region="r1"), engine("b", 20, region="r2")]
    previous = [
        table({"a": 10_000}, policy="p1"),
        msgspec.structs.replace(table({"b": 1}, policy="p2"), frontend="fe-2"),
    ]
    held, solved = run_strategies(snapshot(engines, policies, previous=previous))
    assert (held.strategy, flows(held)) == ("Held", {"a": 19, "b": 0})
    assert flows(solved) == {"a": 1, "b": 4}


def test_frozen_without_a_table_is_solved() -> None:
    result = only(snapshot(ENGINES, [policy(metadata=FROZEN, strategy={"type": "Nearest"})]))
    assert (result.strategy, result.solution.status) == ("Nearest", "Rule")
    result = only(snapshot(ENGINES, [policy(metadata=FROZEN)]))
    assert (result.strategy, result.solution.status) == ("Optimized", "Optimal")


def test_the_solve_is_a_seam() -> None:
    asked: list[tuple[tuple[str, ...], dict[str, float]]] = []

    def solve(world: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Solution:
        asked.append((policies, dict(fixed)))
        return optimized(world, policies, fixed)

    policies = [policy("p1", [frontend("fe-1")]), policy("p2", [frontend("fe-2")])]
    run_strategies(snapshot(ENGINES, policies), solve=solve)
    assert asked == [(("ns/p1", "ns/p2"), {})]


@pytest.mark.parametrize("strategy", ["Optimized", "RoundRobin"])
def test_rerun_gives_the_same(strategy: str) -> None:
    world = snapshot(ENGINES, [policy(strategy={"type": strategy})])
    result = only(world)
    assert rerun(world, result.policies, {}, optimized) == result.solution


def test_no_engine_at_all() -> None:
    for strategy in ("Optimized", "Nearest", "Static", "RoundRobin"):
        solution = only(snapshot([], [policy(strategy={"type": strategy})])).solution
        assert solution.routes == ()


@pytest.mark.parametrize("rate", [3.0, 300.0])
def test_a_rule_routes_all_that_is_offered(rate: float) -> None:
    world = snapshot(ENGINES, [policy(strategy={"type": "RoundRobin"})], Signals(demand=(demand(rps=rate),)))
    assert sum(flows(only(world)).values()) == pytest.approx(rate)
