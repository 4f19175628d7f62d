"""The worked example of the README and the issue, to the digit: what a reader can check by hand."""

from __future__ import annotations

import pytest

from headrace_operator.optimizer import components, solve
from headrace_operator.snapshot.model import Snapshot
from support.fleet import CHAT, classic, demand, engine, flows_of, network, policy, shed_of


def test_a_and_c_stay_local_and_b_sends_its_surplus_to_the_nearer_c() -> None:
    solution = solve(classic(), CHAT)
    assert solution.status == "Optimal"
    assert flows_of(solution) == pytest.approx({("a", "a"): 90, ("b", "b"): 100, ("b", "c"): 20, ("c", "c"): 40})
    assert sum(shed_of(solution).values()) == 0
    # 230 requests at home in 101 ms each, 20 at c in 140 ms.
    assert solution.objective == pytest.approx(230 * 0.101 + 20 * 0.140)


def test_the_prices_say_why_c_and_not_a() -> None:
    solution = solve(classic(), CHAT)
    reduced = {(r.source.frontend, r.engine): r.reduced_cost for r in solution.routes}
    marginal = {entry.source.frontend: entry.marginal for entry in solution.sources}
    price = {entry.engine: entry.price for entry in solution.engines}
    assert reduced["b", "default/a"] == pytest.approx(0.020)  # 60 ms away instead of 40
    assert marginal == pytest.approx({"a": 0.101, "b": 0.140, "c": 0.101})
    # One replica of b serves 100 requests/s, each of which saves the 39 ms to c.
    assert price == pytest.approx({"default/a": 0.0, "default/b": 3.9, "default/c": 0.0})


def test_a_lack_of_20_is_shed_where_it_costs_least() -> None:
    """12 at B, its first tenth, then 4 at C and 4 at A, which free room for B."""
    solution = solve(classic(50), CHAT)
    assert shed_of(solution) == pytest.approx({"a": 4, "b": 12, "c": 4})
    assert flows_of(solution) == pytest.approx(
        {("a", "a"): 86, ("b", "a"): 14, ("b", "b"): 50, ("b", "c"): 44, ("c", "c"): 36}
    )
    assert all(entry.marginal is None for entry in solution.sources)


def test_the_lower_priority_is_shed_first() -> None:
    shares = (("batch", 10, 0.5), ("interactive", 100, 0.5))
    sources = tuple(demand(name, rate, priorities=shares) for name, rate in (("a", 90), ("b", 120), ("c", 40)))
    solution = solve(classic(50, demand=sources), CHAT)
    by_priority = [dict(entry.shed) for entry in solution.sources]
    assert sum(shed["batch"] for shed in by_priority) == pytest.approx(20)
    assert sum(shed["interactive"] for shed in by_priority) == 0


def test_two_policies_share_one_engine_past_its_soft_target() -> None:
    """Two policies of 60 on one engine of 100 at target 85: it carries 100, 20 are shed."""
    names = ("default/p", "default/q")
    snapshot = Snapshot(
        at=0.0,
        engines=(engine("x"),),
        policies=tuple(policy(name, frontends="a", target=85) for name in "pq"),
        demand=tuple(demand("a", 60, policy=name) for name in "pq"),
        network=network({("a", "x"): 1}, policy="p") + network({("a", "x"): 1}, policy="q"),
    )
    assert components(snapshot) == (names,)
    solution = solve(snapshot, names)
    assert solution.engines[0].load == pytest.approx(1.0)
    assert sum(route.flow for route in solution.routes) == pytest.approx(100)
    assert sum(amount for entry in solution.sources for _, amount in entry.shed) == pytest.approx(20)
