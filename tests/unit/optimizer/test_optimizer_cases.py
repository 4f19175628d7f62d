"""Faults that people reported of systems like this one, as the optimizer must answer them."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import msgspec
import numpy as np
import pytest

from headrace_api.engine import PerReplica, Profile
from headrace_operator.optimizer import WarmModel, cold, loaded, next_savings, solve
from headrace_operator.optimizer.residuals import fault_of
from headrace_operator.optimizer.solver import Answer, LoadedProgramme
from headrace_operator.snapshot.model import EngineState, PreviousRoute, Snapshot
from headrace_operator.snapshot.signals import Factor
from support.fleet import CHAT, RISING, classic, demand, engine, flows_of, network, policy, profile, shed_of


def pool(*engines: EngineState, rate: float = 40, **fields: Any) -> Snapshot:
    """One front-end, engines at 1 ms."""
    return Snapshot(
        at=0.0,
        engines=engines,
        policies=(policy(frontends="a"),),
        demand=(demand("a", rate, **fields),),
        network=network({("a", entry.id.rpartition("/")[2]): 1 for entry in engines}),
    )


@pytest.mark.parametrize("order", list(itertools.permutations(("a", "b", "c"))))
def test_lp_01_equal_engines_get_equal_weights_in_any_order(order: tuple[str, ...]) -> None:
    """LP-01 (identical engines get 100/0): https://github.com/coin-or/Cbc/issues/629

    Equal by pools: exactly equal, with any names and order; the third, slower engine is not one of them.
    """
    shapes = {"a": profile({0: 100, 100: 100}), "b": profile({0: 100, 100: 100}), "c": profile({0: 130, 100: 130})}
    found = flows_of(solve(pool(*(engine(name, shape=shapes[name]) for name in order)), CHAT))
    assert found == {("a", "a"): 20.0, ("a", "b"): 20.0}


def test_lp_01_equal_engines_share_by_ready_replicas() -> None:
    """LP-01: https://github.com/pywr/pywr/issues/358. By replicas, as the design says, whatever their number."""
    found = flows_of(solve(pool(engine("a", ready=1), engine("b", ready=3), engine("c", ready=4)), CHAT))
    assert found == pytest.approx({("a", "a"): 5.0, ("a", "b"): 15.0, ("a", "c"): 20.0}, rel=1e-12)


def test_lp_01_engines_that_differ_in_any_number_are_no_pool() -> None:
    """LP-01: alike when idle, not when busy; https://github.com/opencobra/cobratoolbox/issues/1252. Busy decides."""
    busy = profile({0: 100, 100: 900})
    found = flows_of(solve(pool(engine("a", shape=busy), engine("b"), rate=90), CHAT))
    assert found == pytest.approx({("a", "b"): 90})


def test_lp_02_demand_above_capacity_is_shed_openly() -> None:
    """LP-02a: https://github.com/llm-d/llm-d-autoscaling/pull/102. The page rules: we shed, with the amount stated."""
    solution = solve(pool(engine("a", rate=10), engine("b", rate=10), rate=50), CHAT)
    assert solution.status == "Optimal"
    assert flows_of(solution) == pytest.approx({("a", "a"): 10, ("a", "b"): 10})
    assert shed_of(solution) == pytest.approx({"a": 30})


def test_lp_02_unknown_capacity_is_neither_none_nor_endless() -> None:
    """LP-02b: https://github.com/llm-d/llm-d-autoscaling/issues/260. Left out with its reason; the other carries on."""
    unknown = engine("a", per_replica=PerReplica(max_concurrency=64), shape=Profile(), models=("other", "m"))
    known = engine("b", shape=Profile())
    solution = solve(pool(unknown, known), CHAT)
    assert flows_of(solution) == pytest.approx({("a", "b"): 40})
    assert [(entry.engine, entry.reason) for entry in solution.ineligible] == [("default/a", "CapacityUnknown")]


@pytest.mark.parametrize(
    ("engines", "reasons"),
    [
        pytest.param((), set(), id="zero-engines"),
        pytest.param((engine("a", ready=0), engine("b", ready=0)), {"NoReadyReplicas"}, id="no-replicas"),
        pytest.param((engine("a", rate=0),), {"NoCapacity"}, id="capacity-zero"),
    ],
)
def test_lp_02_nothing_to_route_to_is_an_answer(engines: tuple[EngineState, ...], reasons: set[str]) -> None:
    """LP-02c, d: https://github.com/llm-d/llm-d-autoscaling/pull/1299. All refused, the reason stated, no exception."""
    solution = solve(pool(*engines), CHAT)
    assert solution.status == "Optimal"
    assert solution.routes == ()
    assert shed_of(solution) == {"a": 40}
    assert solution.sources[0].marginal is None
    assert solution.message == "no eligible engine for m"
    assert {entry.reason for entry in solution.ineligible} == reasons


def test_lp_02_one_engine_carries_everything() -> None:
    """LP-02e: https://github.com/scipy/scipy/issues/13610"""
    assert flows_of(solve(pool(engine("a")), CHAT)) == {("a", "a"): 40.0}


@pytest.mark.parametrize("rate", [0.0, -3.0, math.nan, math.inf])
def test_lp_02_no_demand_still_has_weights(rate: float) -> None:
    """LP-02f: https://github.com/scipy/scipy/issues/13610. Every source enters with at least 0.01 requests/s."""
    solution = solve(pool(engine("a"), engine("b"), rate=rate), CHAT)
    assert flows_of(solution) == {("a", "a"): 0.005, ("a", "b"): 0.005}
    assert solution.sources[0].demand == 0.01


@pytest.mark.parametrize(
    ("status", "damage"),
    [
        pytest.param("Infeasible", lambda values: values, id="infeasible"),
        pytest.param("Time limit reached", lambda values: values, id="time-limit"),
        pytest.param("Optimal", lambda values: values * 0.7, id="sum-0.7"),
        pytest.param("Optimal", lambda values: values * 0.0, id="all-zero"),
        pytest.param("Optimal", lambda values: values * math.nan, id="nan"),
        pytest.param("Optimal", lambda values: values - 1e-3, id="negative"),
        pytest.param("Optimal", lambda values: values[:-1], id="short"),
    ],
)
def test_lp_02_and_lp_05_an_unproven_answer_is_never_weights(
    monkeypatch: pytest.MonkeyPatch, status: str, damage: Any
) -> None:
    """LP-02g: https://github.com/scipy/scipy/issues/13610; LP-05: https://github.com/coin-or/pulp/issues/649

    A solver that stopped early, or says optimal of values that break a row, ends as Failed with a sentence.
    """
    run = LoadedProgramme.run

    def broken(self: LoadedProgramme) -> Answer:
        answer = run(self)
        return answer._replace(status=status, values=damage(answer.values))

    monkeypatch.setattr(LoadedProgramme, "run", broken)
    solution = solve(classic(), CHAT)
    assert (solution.status, solution.routes, solution.engines) == ("Failed", (), ())
    assert solution.message.startswith("the solver")
    verdict = WarmModel().assess(classic(), CHAT)
    assert verdict.moves
    assert verdict.why == solution.message


def test_lp_05_a_feasible_answer_that_is_not_proven_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LP-05: https://github.com/evcc-io/optimizer/pull/124. Feasible and called optimal, but dearer: the duals tell."""
    run = LoadedProgramme.run

    def dearer(self: LoadedProgramme) -> Answer:
        answer = run(self)
        return answer._replace(row_duals=answer.row_duals * 0.9)

    monkeypatch.setattr(LoadedProgramme, "run", dearer)
    solution = solve(classic(), CHAT)
    assert solution.status == "Failed"
    assert "isn't proven" in solution.message


def test_lp_05_a_real_time_limit_ends_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """LP-05: https://github.com/coin-or/pulp/issues/517. The real solver, stopped at once."""
    monkeypatch.setattr(cold, "TIME_LIMIT", 1e-9)
    rng = random.Random(5)
    names = [f"e{index:02d}" for index in range(40)]
    snapshot = pool(*(engine(name, rate=rng.uniform(5, 20), shape=RISING) for name in names), rate=200)
    solution = solve(snapshot, CHAT)
    assert solution.status == "Failed"
    assert "Time limit" in solution.message


def test_lp_05_tiny_violations_are_clipped_and_sums_made_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """LP-05: https://github.com/coin-or/pulp/pull/649. -1e-12 and a sum of 1.0000000002 are rounding."""
    run = LoadedProgramme.run

    def rounded(self: LoadedProgramme) -> Answer:
        answer = run(self)
        return answer._replace(values=np.where(answer.values == 0.0, -1e-12, answer.values * (1 + 2e-10)))

    monkeypatch.setattr(LoadedProgramme, "run", rounded)
    solution = solve(classic(), CHAT)
    assert solution.status == "Optimal"
    assert min(route.flow for route in solution.routes) == 0.0
    for entry in solution.sources:
        routed = sum(route.flow for route in solution.routes if route.source == entry.source)
        assert routed == pytest.approx(entry.demand, rel=1e-14)


BAD_NUMBERS = [math.nan, math.inf, -math.inf, -1.0, 1e300]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("field", ["trim", "penalty", "ready", "hit_share", "background", "round_trip", "tokens"])
def test_lp_04_one_bad_number_costs_one_engine_at_most(field: str, value: float) -> None:
    """LP-04: https://github.com/coin-or/pulp/issues/855. The other engine is served from its data; no NaN comes out."""
    bad = engine("a", shape=RISING)
    if field in ("trim", "penalty"):
        bad = msgspec.structs.replace(bad, **{field: Factor(value=value)})
    elif field in ("ready", "hit_share", "background"):
        bad = msgspec.structs.replace(bad, **{field: value})
    snapshot = pool(bad, engine("b", shape=RISING), input_tokens=value if field == "tokens" else 900.0)
    if field == "round_trip":
        snapshot = msgspec.structs.replace(snapshot, network=network({("a", "a"): value, ("a", "b"): 1}))
    solution = solve(snapshot, CHAT)
    assert solution.status == "Optimal"
    routed = sum(flows_of(solution).values())
    assert routed + sum(shed_of(solution).values()) == pytest.approx(40)
    assert flows_of(solution).get(("a", "b"), 0.0) > 0 or (field, value) == ("tokens", 1e300)
    text = msgspec.json.encode(solution)
    assert b"NaN" not in text
    assert b"null" not in text.replace(b'"marginal":null', b"")


def test_wei_04_noise_on_one_pool_neither_crowds_one_engine_nor_flaps() -> None:
    """WEI-04: https://github.com/linkedin/venice/pull/3009, https://github.com/hawkv6/hawkeye/issues/9

    Five engines of one pool whose measured token time differs by a few percent and wobbles by 3 % a cycle. No share
    above 1.5 times the equal one, little movement; then one engine is 3 times slow: it loses weight and doesn't swing.
    """
    rng = random.Random(4)
    names = ["e1", "e2", "e3", "e4", "e5"]
    pace = dict(zip(names, (31, 30, 33, 28, 27), strict=True))
    weights: dict[str, float] = dict.fromkeys(names, 0.2)
    savings: tuple[Any, ...] = ()
    model, moved, published, slow_shares = WarmModel(), [], 0, []
    for cycle in range(60):
        slow = 80 / 27 if cycle >= 30 else 1.0
        engines = tuple(
            engine(
                name,
                rate=20,
                shape=RISING,
                trim=27 / pace[name] / (slow if name == "e5" else 1.0) * rng.uniform(0.97, 1.03),
            )
            for name in names
        )
        snapshot = msgspec.structs.replace(
            pool(*engines, rate=60, origin="Measured"),
            at=5.0 * cycle,
            savings=savings,
            previous=tuple(
                PreviousRoute(
                    policy=CHAT[0], frontend="a", model="m", prompt_class=0, engine=f"default/{name}", weight=share
                )
                for name, share in weights.items()
                if share
            ),
        )
        verdict = model.assess(snapshot, CHAT)
        savings = verdict.savings
        if verdict.moves:
            published += 1
            solution = solve(snapshot, CHAT)
            savings = next_savings(snapshot, solution)
            found = flows_of(solution)
            after = {name: found.get(("a", name), 0.0) / 60 for name in names}
            moved.append((cycle, sum(abs(after[name] - weights[name]) for name in names)))
            weights = after
        if cycle < 30:
            assert max(weights.values()) <= 1.5 * 0.2
        else:
            slow_shares.append(weights["e5"])
    noise = [amount for cycle, amount in moved if 2 <= cycle < 30]
    assert sum(noise) / 28 < 0.03
    assert slow_shares[5] < 0.12
    assert all(share < 0.14 for share in slow_shares[5:])
    assert min(slow_shares) > 0.0


@pytest.mark.parametrize(
    ("spec", "engines"),
    [
        pytest.param({"engine_selector": {"matchLabels": {"tier": "none"}}}, 3, id="h-selector-matches-nothing"),
        pytest.param({"models": [{"name": "m", "requires": ["vision"]}]}, 3, id="capability-no-engine-has"),
        pytest.param(
            {"protection": {"retry": {"budget": {"idlePercent": 100}}}, "ejection": {"maxPercent": 0}}, 0, id="e"
        ),
    ],
)
def test_crd_04_relations_that_no_schema_sees_end_in_reasons(spec: dict[str, Any], engines: int) -> None:
    """CRD-04: https://github.com/openshift/api/pull/412, https://github.com/openservicemesh/osm/issues/3615

    Each value is valid by itself; together they may leave nothing to route to. Then everything is refused with the
    rule named for each engine, and it is picked up as soon as an engine fits.
    """
    base = policy()
    changed = msgspec.convert(
        msgspec.to_builtins(base.spec) | {_camel(key): value for key, value in spec.items()}, type(base.spec)
    )
    solution = solve(classic(policies=(msgspec.structs.replace(base, spec=changed),)), CHAT)
    assert solution.status == "Optimal"
    assert len(solution.ineligible) == 3 * engines
    assert (solution.routes == ()) == (engines > 0)
    if engines:
        assert shed_of(solution) == {"a": 90, "b": 120, "c": 40}
        assert all(entry.reason in ("NotSelected", "CapabilityMissing") for entry in solution.ineligible)


def test_crd_04_capacity_0_of_the_only_engine_names_it() -> None:
    """CRD-04f: https://github.com/openshift/api/pull/412. One engine of capacity 0: refused, and the reason says so."""
    solution = solve(pool(engine("only", rate=0)), CHAT)
    assert [(entry.reason, entry.message) for entry in solution.ineligible] == [
        ("NoCapacity", "only declares a capacity of 0, or next to it")
    ]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def test_residuals_name_what_is_wrong() -> None:
    """The rows and bounds are judged by their own size, so that a small source is not drowned by a large one."""
    snapshot = Snapshot(
        at=0.0,
        engines=(engine("x", ready=1000),),
        policies=(policy(frontends="ab"),),
        demand=(demand("a", 90_000), demand("b", 0.01)),
        network=network({("a", "x"): 1, ("b", "x"): 1}),
    )
    layout = cold.build_layout(snapshot, CHAT)
    problem = cold.build_problem(layout, cold.Reader(layout).read(snapshot), {}, shedding=True)
    programme = loaded.load(problem, problem.allowed)
    answer = programme.programme.run()
    assert fault_of(answer, programme.shape, programme.numbers) is None
    values = answer.values.copy()
    small = programme.shape.first_pair + 1
    assert values[small] == pytest.approx(1e-4)
    values[small] = 0.5e-4
    fault = fault_of(answer._replace(values=values), programme.shape, programme.numbers)
    assert fault is not None
    assert "misses a row" in fault
