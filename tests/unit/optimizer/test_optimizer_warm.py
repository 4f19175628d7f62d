"""The warm model: it decides whether anything moves, over many ticks and changes, and publishes nothing."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest

from headrace_operator.optimizer import WarmModel, loaded, solve, solver, warm
from headrace_operator.snapshot.model import EngineState, PolicyState, SavingSince, Snapshot
from headrace_operator.snapshot.signals import Factor
from support.fleet import CHAT, RISING, classic, demand, engine, flows_of, network, policy, previous
from support.lp_instances import policy_ids, random_instance, snapshot_of

OPTIMUM = {("a", "a"): 1.0, ("b", "b"): 100 / 120, ("b", "c"): 20 / 120, ("c", "c"): 1.0}


def standing(weights: dict[tuple[str, str], float] = OPTIMUM, **fields: Any) -> Snapshot:
    """The classic example with weights in force."""
    return classic(previous=previous(weights), **fields)


def test_the_optimum_in_force_moves_nothing() -> None:
    verdict = WarmModel().assess(standing(), CHAT)
    assert not verdict.moves
    assert verdict.objective_current == pytest.approx(verdict.objective_new)
    assert "deadband is 0.1%" in verdict.why


def test_the_tables_rounding_to_integers_moves_nothing() -> None:
    """Weights are integers of 10,000: an engine may be a hair above its capacity, a sum a hair below 1."""
    rounded = OPTIMUM | {("b", "b"): 0.8334, ("b", "c"): 0.1666, ("c", "c"): 0.9999}
    verdict = WarmModel().assess(standing(rounded), CHAT)
    assert not verdict.moves
    assert math.isfinite(verdict.objective_current)


def test_a_soft_limit_filled_by_rounded_weights_moves_nothing() -> None:
    """6,667 of 10,000 of 30 requests/s is 0.001 beyond the target's 20: rounding, even without a deadband."""
    snapshot = Snapshot(
        at=0.0,
        engines=(engine("far", rate=100), engine("near", rate=40)),
        policies=(without_deadband(policy(frontends="a", target=50)),),
        demand=(demand("a", 30),),
        network=network({("a", "near"): 1, ("a", "far"): 31}),
        previous=previous({("a", "near"): 0.6667, ("a", "far"): 0.3333}),
    )
    assert not WarmModel().assess(snapshot, CHAT).moves
    beyond = previous({("a", "near"): 0.67, ("a", "far"): 0.33})
    assert WarmModel().assess(msgspec.structs.replace(snapshot, previous=beyond), CHAT).moves


def without_deadband(state: PolicyState) -> PolicyState:
    objective = msgspec.structs.replace(state.spec.objective, deadband_permille=0)
    return msgspec.structs.replace(state, spec=msgspec.structs.replace(state.spec, objective=objective))


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        pytest.param({}, "a source has no weights yet", id="first-solve"),
        pytest.param(OPTIMUM | {("a", "gone"): 0.5}, "an engine that carried traffic is gone", id="lost-engine"),
        pytest.param(
            OPTIMUM | {("b", "c"): 0.0, ("b", "a"): 20 / 120},
            "the weights in force put 110.0% of its capacity on a",
            id="beyond-capacity",
        ),
        pytest.param(
            OPTIMUM | {("b", "c"): 10 / 120, ("b", "a"): 10 / 120},
            "the weights in force cost 0.77% more than the best; the deadband is 0.1%",
            id="dearer",
        ),
    ],
)
def test_why_weights_must_move(weights: dict[tuple[str, str], float], why: str) -> None:
    verdict = WarmModel().assess(standing(weights, policies=(policy(target=100, move_cost="0s"),)), CHAT)
    assert verdict.moves
    assert verdict.why == why


def test_weights_that_shed_move_when_nothing_has_to_be_shed() -> None:
    weights = OPTIMUM | {("a", "a"): 0.5}
    calm = WarmModel().assess(
        standing(weights, demand=tuple(demand(f, r, origin="Measured") for f, r in (("a", 90), ("b", 120), ("c", 40)))),
        CHAT,
    )
    assert calm.moves
    assert calm.why == "the weights in force shed, and nothing has to be shed"
    declared = WarmModel().assess(standing(weights), CHAT)
    assert declared.moves
    assert declared.objective_current > declared.objective_new


def test_shed_shares_in_force_are_priced_and_stand() -> None:
    short = solve(classic(50), CHAT)
    flows = flows_of(short)
    rates = {"a": 90, "b": 120, "c": 40}
    weights = {pair: flow / rates[pair[0]] for pair, flow in flows.items()}
    snapshot = classic(50, previous=previous(weights))
    verdict = WarmModel().assess(snapshot, CHAT)
    assert not verdict.moves
    assert verdict.objective_current == pytest.approx(solve(snapshot, CHAT).objective)


def test_a_deadband_of_zero_still_ignores_rounding() -> None:
    exact = without_deadband(policy(target=100))
    assert not WarmModel().assess(standing(policies=(exact,)), CHAT).moves


def test_savings_keep_the_time_since_when_they_stand() -> None:
    """Weights that a move would better by 5 ms, less than its price: nothing moves, the saving's age is carried."""
    times = network({("a", "near"): 1, ("a", "far"): 6})
    snapshot = Snapshot(
        at=500.0,
        engines=(engine("far"), engine("near")),
        policies=(policy(frontends="a", target=100),),
        demand=(demand("a", 80),),
        network=times,
        previous=previous({("a", "far"): 1.0}),
    )
    model = WarmModel()
    first = model.assess(snapshot, CHAT)
    expected = SavingSince(policy=CHAT[0], frontend="a", model="m", prompt_class=0, engine="default/near", since=500.0)
    assert first.savings == (expected,)
    later = msgspec.structs.replace(snapshot, at=505.0, savings=first.savings)
    assert model.assess(later, CHAT).savings == (expected,)


def test_overload_is_noticed_while_shedding_is_closed() -> None:
    measured = tuple(demand(front, rate, origin="Measured") for front, rate in (("a", 200), ("b", 120), ("c", 40)))
    model = WarmModel()
    verdict = model.assess(standing(demand=measured), CHAT)
    assert verdict.overloaded
    assert not model.assess(standing(), CHAT).overloaded
    assert not model.assess(standing(demand=measured, shedding=CHAT), CHAT).overloaded


def test_no_engine_at_all_moves_nothing() -> None:
    verdict = WarmModel().assess(classic(engines=()), CHAT)
    assert (verdict.moves, verdict.why) == (False, "no eligible engine")


def fleet(rng: random.Random, names: list[str]) -> list[EngineState]:
    return [engine(name, rate=rng.randint(5, 15), ready=rng.randint(1, 9), shape=RISING) for name in names]


def wide(engines: list[EngineState], rng: random.Random, level: float, **fields: Any) -> Snapshot:
    """Six front-ends at a share of the engines' capacity, random distances."""
    fronts = [f"f{index}" for index in range(6)]
    total = sum(float(str(e.spec.capacity.per_replica.requests_per_second)[:-1]) / 1000 * e.ready for e in engines)
    parts = [rng.uniform(0.2, 1.0) for _ in fronts]
    values: dict[str, Any] = {
        "at": 0.0,
        "engines": tuple(engines),
        "policies": (policy(frontends=fronts),),
        "demand": tuple(
            demand(front, level * total * part / sum(parts), origin="Measured")
            for front, part in zip(fronts, parts, strict=True)
        ),
        "network": network(
            {(front, e.id.rpartition("/")[2]): rng.uniform(1, 150) for front in fronts for e in engines}
        ),
    }
    return Snapshot(**(values | fields))


def test_candidates_are_added_until_no_pair_pays() -> None:
    """60 engines, 20 candidates a source: the nearest cannot carry it, and the answer is that of all pairs."""
    rng = random.Random(8)
    engines = fleet(rng, [f"e{index:02d}" for index in range(60)])
    snapshot = wide(engines, rng, 0.9)
    model = WarmModel()
    narrow = model.assess(snapshot, CHAT)
    cold = solve(snapshot, CHAT)
    assert narrow.objective_new == pytest.approx(cold.objective, rel=1e-4)
    assert 6 * 20 < model.candidates.sum() < 6 * 60
    everything = {(route.source.frontend, route.engine) for route in cold.routes}
    assert len(everything) == 6 * 60
    # No route left unused would be cheaper than what its source pays.
    price = {entry.engine: entry.price for entry in cold.engines}
    pays = {entry.source: entry.price for entry in cold.sources}
    assert all(
        route.unloaded + route.work * price[route.engine] >= pays[route.source] * (1 - 1e-6) for route in cold.routes
    )


def test_a_lack_near_by_never_sheds_while_there_is_room_far_away() -> None:
    rng = random.Random(9)
    engines = fleet(rng, [f"e{index:02d}" for index in range(50)])
    snapshot = wide(engines, rng, 0.97, shedding=CHAT)
    solution = solve(snapshot, CHAT)
    assert sum(amount for entry in solution.sources for _, amount in entry.shed) == 0.0


def test_the_model_follows_failures_edits_and_new_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """One model through a day's changes gives what a new one gives; only edits and large drifts build it anew."""
    built = []
    load = warm.load
    monkeypatch.setattr(warm, "load", lambda *args, **kwargs: built.append(1) or load(*args, **kwargs))
    rng = random.Random(10)
    engines = fleet(rng, [f"e{index:02d}" for index in range(12)])
    snapshot = wide(engines, rng, 0.7)
    model = WarmModel()

    def check(changed: Snapshot, expected: int) -> None:
        before = len(built)
        verdict = model.assess(changed, CHAT)
        assert len(built) - before == expected
        assert verdict.objective_new == pytest.approx(solve(changed, CHAT).objective, rel=1e-4)

    check(snapshot, 1)
    check(snapshot, 0)
    dead = msgspec.structs.replace(engines[3], alive=False)
    check(msgspec.structs.replace(snapshot, engines=(*engines[:3], dead, *engines[4:])), 0)
    slow = msgspec.structs.replace(engines[5], trim=Factor(value=0.4))
    check(msgspec.structs.replace(snapshot, engines=(*engines[:5], slow, *engines[6:])), 0)
    check(msgspec.structs.replace(snapshot, network=snapshot.network[:10]), 0)
    weights = tuple(entry for entry in previous({("f0", "e01"): 0.5, ("f0", "e07"): 0.5, ("f1", "e03"): 1.0}))
    check(msgspec.structs.replace(snapshot, previous=weights), 0)
    check(msgspec.structs.replace(snapshot, demand=snapshot.demand[:-1]), 1)
    check(snapshot, 1)
    check(msgspec.structs.replace(snapshot, engines=tuple(engines[:-1])), 1)
    shares = (("batch", 1, 0.5), ("interactive", 2, 0.5))
    told = tuple(msgspec.structs.replace(entry, priorities=shares) for entry in snapshot.demand)
    check(snapshot, 1)
    check(msgspec.structs.replace(snapshot, demand=told), 1)


def test_drifted_work_ratios_build_the_matrix_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace_api.engine import PerReplica

    built = []
    load = warm.load
    monkeypatch.setattr(warm, "load", lambda *args, **kwargs: built.append(1) or load(*args, **kwargs))
    kinds = (
        engine("p", per_replica=PerReplica(prefill_tokens_per_second=9000, decode_tokens_per_second=9000)),
        engine("q", per_replica=PerReplica(prefill_tokens_per_second=90000, decode_tokens_per_second=3000)),
    )

    def ask(tokens_in: float, tokens_out: float) -> Snapshot:
        return Snapshot(
            at=0.0,
            engines=kinds,
            policies=(policy(frontends="a"),),
            demand=(demand("a", 9, input_tokens=tokens_in, output_tokens=tokens_out),),
            network=network({("a", "p"): 1, ("a", "q"): 2}),
        )

    model = WarmModel()
    for tokens_in, tokens_out, expected in ((900, 220, 1), (1800, 440, 1), (910, 221, 1), (900, 400, 2)):
        verdict = model.assess(ask(tokens_in, tokens_out), CHAT)
        assert len(built) == expected
        assert verdict.objective_new == pytest.approx(solve(ask(tokens_in, tokens_out), CHAT).objective, rel=0.03)


def test_a_programme_that_grew_too_long_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "LONGEST", 1)
    rng = random.Random(11)
    engines = fleet(rng, [f"e{index:02d}" for index in range(40)])
    snapshot = wide(engines, rng, 0.9)
    model = WarmModel()
    first = model.assess(snapshot, CHAT)
    grown = model.candidates.sum()
    assert grown > 6 * 20
    again = model.assess(snapshot, CHAT)
    assert again.objective_new == pytest.approx(first.objective_new, rel=1e-4)


def test_pairs_without_end_are_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "ROUNDS", 1)
    rng = random.Random(8)
    engines = fleet(rng, [f"e{index:02d}" for index in range(60)])
    snapshot = wide(engines, rng, 0.95)
    assert solve(snapshot, CHAT).message == "pairs still priced out after 1 rounds"
    assert WarmModel().assess(snapshot, CHAT).why == "pairs still priced out after 1 rounds"


def test_a_far_region_with_much_room_is_added_a_few_pairs_a_round() -> None:
    """Twenty small engines near by, forty large ones far away: more pairs pay than one round adds."""
    near = [engine(f"n{index:02d}", rate=5, shape=RISING) for index in range(20)]
    far = [engine(f"z{index:02d}", rate=5 + index, ready=4, shape=RISING) for index in range(40)]
    snapshot = Snapshot(
        at=0.0,
        engines=(*near, *far),
        policies=(policy(frontends="a"),),
        demand=(demand("a", 1500),),
        network=network({("a", e.id.rpartition("/")[2]): 1 if "/n" in e.id else 100 for e in (*near, *far)}),
    )
    solution = solve(snapshot, CHAT)
    assert solution.status == "Optimal"
    assert sum(route.flow > 0 for route in solution.routes) > 40


def test_a_solver_that_stumbles_over_its_tolerances_is_asked_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of 1e8 against an optimality of 1e-9: HiGHS gives up; with a looser one it proves the same optimum."""
    instance = random_instance(52)
    snapshot, policies = snapshot_of(instance), policy_ids(instance)
    expected = solve(snapshot, policies, fixed=instance["fixed"])
    monkeypatch.setattr(solver, "COST_DIGITS", 1e-30)
    statuses = []
    solved = solver.LoadedProgramme._solved
    monkeypatch.setattr(solver.LoadedProgramme, "_solved", lambda self: statuses.append(solved(self)) or statuses[-1])
    found = solve(snapshot, policies, fixed=instance["fixed"])
    assert statuses == ["Not Set", "Optimal"]
    assert found.objective == pytest.approx(expected.objective, rel=1e-9)
