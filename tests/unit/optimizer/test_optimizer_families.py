"""One hand-solvable programme for each family of constraints and costs, rechecked from the solution."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from headrace_api.engine import PerReplica
from headrace_operator.optimizer import next_savings, solve
from headrace_operator.optimizer.layout import build_layout
from headrace_operator.optimizer.problem import build_problem
from headrace_operator.optimizer.programme import LOAD_COLUMNS, engine_prices, shape_of
from headrace_operator.optimizer.readings import Reader
from headrace_operator.snapshot.model import SavingSince, Snapshot
from support.fleet import (
    CHAT,
    FLAT,
    demand,
    engine,
    flows_of,
    network,
    policy,
    previous,
    profile,
    shed_of,
)


def two(**fields: object) -> Snapshot:
    """One front-end; engine near (100 requests/s, 1 ms away) and far (100, 51 ms), flat, target 100."""
    values: dict[str, object] = {
        "at": 1000.0,
        "engines": (engine("far"), engine("near")),
        "policies": (policy(frontends="a", target=100),),
        "demand": (demand("a", 80),),
        "network": network({("a", "near"): 1, ("a", "far"): 51}),
    }
    return Snapshot(**(values | fields))  # type: ignore[arg-type]


def test_balance_all_demand_is_routed_at_the_lowest_latency() -> None:
    solution = solve(two(), CHAT)
    assert flows_of(solution) == pytest.approx({("a", "near"): 80})
    assert solution.sources[0].price == pytest.approx(0.101)


def test_load_latency_that_rises_with_utilisation_equalises_marginal_cost() -> None:
    """T = 100 ms + 100 ms u, so G' w = 200 ms u: near fills until its marginal cost meets far's 50 ms more."""
    rising = profile({0: 100, 100: 200})
    engines = (engine("far", shape=rising), engine("near", shape=rising))
    solution = solve(two(engines=engines, demand=(demand("a", 100),)), CHAT)
    found = flows_of(solution)
    # 0.2 u_near = 0.05 + 0.2 u_far and u_near + u_far = 1: u_near = 0.625, within the pieces' width.
    assert found["a", "near"] == pytest.approx(62.5, abs=3)
    assert sum(found.values()) == pytest.approx(100)


def test_soft_limit_is_passed_only_when_nothing_else_is_left() -> None:
    over = two(policies=(policy(frontends="a", target=85),), demand=(demand("a", 180),))
    assert flows_of(solve(two(policies=over.policies), CHAT)) == pytest.approx({("a", "near"): 80})
    spread = flows_of(solve(two(policies=over.policies, demand=(demand("a", 100),)), CHAT))
    assert spread == pytest.approx({("a", "near"): 85, ("a", "far"): 15})
    full = solve(over, CHAT)
    assert sum(flows_of(full).values()) == pytest.approx(180)
    assert shed_of(full) == {"a": 0}


def test_hard_capacity_holds_while_shedding_is_open() -> None:
    solution = solve(two(demand=(demand("a", 250),)), CHAT)
    assert flows_of(solution) == pytest.approx({("a", "near"): 100, ("a", "far"): 100})
    assert shed_of(solution) == pytest.approx({"a": 50})
    assert all(entry.load <= entry.capacity * (1 + 1e-12) for entry in solution.engines)


def test_closed_shedding_overloads_openly() -> None:
    """Measured demand that was not above capacity in two readings is carried, never refused."""
    solution = solve(two(demand=(demand("a", 250, origin="Measured"),)), CHAT)
    assert shed_of(solution) == {"a": 0}
    assert sum(flows_of(solution).values()) == pytest.approx(250)
    assert not solution.shedding_open
    opened = solve(two(demand=(demand("a", 250, origin="Measured"),), shedding=CHAT), CHAT)
    assert shed_of(opened) == pytest.approx({"a": 50})


def test_penalty_shrinks_what_balancing_aims_at_and_never_sheds() -> None:
    engines = (engine("far"), engine("near", penalty=0.2))
    assert flows_of(solve(two(engines=engines), CHAT)) == pytest.approx({("a", "near"): 20, ("a", "far"): 60})
    full = solve(two(engines=engines, demand=(demand("a", 200),)), CHAT)
    assert shed_of(full) == {"a": 0}
    assert flows_of(full) == pytest.approx({("a", "near"): 100, ("a", "far"): 100})


def test_work_is_what_an_engine_states_and_not_a_request() -> None:
    """900 tokens in at 9,000/s and 220 out at 2,200/s: 0.2 s of one replica; 5 requests/s fill it."""
    slow = PerReplica(prefill_tokens_per_second=9000, decode_tokens_per_second=2200)
    engines = (engine("far"), engine("near", per_replica=slow))
    solution = solve(two(engines=engines), CHAT)
    assert flows_of(solution) == pytest.approx({("a", "near"): 5, ("a", "far"): 75})
    assert {entry.engine: entry.mean_work for entry in solution.engines} == pytest.approx(
        {"default/near": 0.2, "default/far": 0.01}
    )


def test_movement_price_holds_back_a_small_saving_until_it_lasted() -> None:
    """near saves 5 ms, a move costs 200 ms x 30/600 = 10 ms: it stays, and moves when the price has fallen."""
    times = network({("a", "near"): 1, ("a", "far"): 6})
    start = two(
        network=times, previous=previous({("a", "far"): 1.0}), policies=(policy(frontends="a", shift=100, target=100),)
    )
    first = solve(start, CHAT)
    assert flows_of(first) == pytest.approx({("a", "far"): 80})
    saving = SavingSince(policy=CHAT[0], frontend="a", model="m", prompt_class=0, engine="default/near", since=1000.0)
    assert next_savings(start, first) == (saving,)
    later = msgspec.structs.replace(start, at=1025.0, savings=(saving,))
    assert flows_of(solve(later, CHAT)) == pytest.approx({("a", "far"): 80})
    assert next_savings(later, solve(later, CHAT)) == (saving,)
    # After 31 s the price has fallen below 5 ms.
    assert flows_of(solve(msgspec.structs.replace(later, at=1031.0), CHAT)) == pytest.approx({("a", "near"): 80})


def test_movement_price_lets_a_large_saving_pass_at_once() -> None:
    start = two(previous=previous({("a", "far"): 1.0}), policies=(policy(frontends="a", shift=100, target=100),))
    solution = solve(start, CHAT)
    assert flows_of(solution) == pytest.approx({("a", "near"): 80})
    assert solution.routes[1].moved == pytest.approx(80)
    assert next_savings(start, solution) == ()


def test_max_shift_bounds_what_one_publication_moves() -> None:
    solution = solve(two(previous=previous({("a", "far"): 1.0})), CHAT)
    assert flows_of(solution) == pytest.approx({("a", "near"): 24, ("a", "far"): 56})  # 30 %


def test_max_shift_yields_to_a_limit_and_to_nothing_else() -> None:
    """far has shrunk to 40 requests/s: 40 of 80 must move, not 24, and no more than that."""
    shrunk = two(engines=(engine("far", rate=40), engine("near")), previous=previous({("a", "far"): 1.0}))
    assert flows_of(solve(shrunk, CHAT)) == pytest.approx({("a", "near"): 40, ("a", "far"): 40})
    passed = two(engines=(engine("far", penalty=0.4), engine("near")), previous=previous({("a", "far"): 1.0}))
    assert flows_of(solve(passed, CHAT)) == pytest.approx({("a", "near"): 40, ("a", "far"): 40})


def test_max_shift_is_left_out_for_a_source_that_lost_an_engine() -> None:
    gone = two(previous=previous({("a", "far"): 0.5, ("a", "gone"): 0.5}))
    assert flows_of(solve(gone, CHAT)) == pytest.approx({("a", "near"): 80})


def test_max_shift_never_keeps_shed_traffic_shed() -> None:
    """Weights that shed half; nothing has to be shed now: all of it comes back at once, beyond maxShift."""
    solution = solve(two(previous=previous({("a", "near"): 0.5})), CHAT)
    assert shed_of(solution) == {"a": 0}
    assert flows_of(solution) == pytest.approx({("a", "near"): 80})


def test_fixed_load_and_background_take_their_room_up_to_capacity() -> None:
    engines = (engine("far"), engine("near", background=0.2))
    solution = solve(two(engines=engines), CHAT, fixed={"default/near": 0.5, "default/far": 7.0})
    assert flows_of(solution) == pytest.approx({("a", "near"): 30})
    assert shed_of(solution) == pytest.approx({"a": 50})
    near = next(entry for entry in solution.engines if entry.engine == "default/near")
    assert (near.load, near.fixed) == pytest.approx((1.0, 0.7))


def test_shed_pieces_spread_a_lack_over_equal_sources() -> None:
    """Two sources of 100 for 150: both give their first half in pieces; neither a piece more than the other."""
    solution = solve(
        Snapshot(
            at=0.0,
            engines=(engine("x", rate=150),),
            policies=(policy(frontends="ab", target=100),),
            demand=(demand("a", 100), demand("b", 100)),
            network=network({("a", "x"): 1, ("b", "x"): 1}),
        ),
        CHAT,
    )
    shares = [amount / 100 for amount in shed_of(solution).values()]
    assert sum(shares) == pytest.approx(0.5)
    assert abs(shares[0] - shares[1]) <= 0.25 + 1e-9
    assert max(shares) <= 0.5


def test_in_flight_counts_follow_littles_law() -> None:
    solution = solve(two(demand=(demand("a", 120),)), CHAT)
    counts = {entry.engine: entry.in_flight for entry in solution.engines}
    assert counts["default/near"] == ((CHAT[0], "a", pytest.approx(100 * 0.101)),)
    assert counts["default/far"] == ((CHAT[0], "a", pytest.approx(20 * 0.151)),)
    assert [entry.ttft for entry in solution.engines] == pytest.approx([0.1, 0.1])
    assert [entry.decode for entry in solution.engines] == [0, 0]


def test_the_lowest_target_of_the_policies_on_an_engine_counts() -> None:
    snapshot = two(
        policies=(policy(frontends="a", target=100), policy("other", frontends="a", target=50)),
        demand=(demand("a", 80), demand("a", 20, policy="other")),
        network=network({("a", "near"): 1, ("a", "far"): 51})
        + network({("a", "near"): 1, ("a", "far"): 51}, policy="other"),
    )
    solution = solve(snapshot, ("default/chat", "default/other"))
    assert [entry.soft for entry in solution.engines] == pytest.approx([0.5, 0.5])
    assert [entry.load for entry in solution.engines] == pytest.approx([0.5, 0.5])


def test_an_idle_engine_costs_its_first_slope_whatever_the_dual_says() -> None:
    """A dual may be as low as it likes where nothing flows; the guard would take such an engine for free."""
    layout = build_layout(two(), CHAT)
    problem = build_problem(layout, Reader(layout).read(two()), {}, shedding=True)
    shape = shape_of(problem, problem.allowed, problem.allowed, problem.shed_work)
    duals, values = np.full(shape.rows, 7.0), np.zeros(shape.columns)
    values[LOAD_COLUMNS] = 0.5
    assert engine_prices(problem, shape, duals, values).tolist() == [0.0, -7.0]
    shut = replace(problem, soft=np.zeros(2))
    assert engine_prices(shut, shape, duals, values).tolist() == [problem.prices.overload, -7.0]


def test_a_profile_that_falls_and_rises_is_repaired_and_named() -> None:
    bent = profile({0: 100, 40: 400, 50: 150, 100: 300})
    solution = solve(two(engines=(engine("far", shape=bent), engine("near", shape=FLAT))), CHAT)
    assert {entry.engine: entry.hull_repaired for entry in solution.engines} == {
        "default/far": True,
        "default/near": False,
    }
