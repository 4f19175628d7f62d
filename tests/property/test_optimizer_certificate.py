"""200 random instances against an oracle that shares no formula with the product: the proof of the optimizer.

Two models, two prompt classes, two priorities, differing hardware, previous weights, movement prices, soft factors,
others' load and shedding. A certificate to 1e-8, the true convex cost to 0.2 %, marginal costs against finite
differences to 1e-6.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from headrace_operator.optimizer import solve
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot
from support.lp_instances import Instance, policy_ids, random_instance, snapshot_of
from support.lp_oracle import Oracle

INSTANCES = 200


def total_shed(solution: Solution) -> float:
    return sum(amount for entry in solution.sources for _, amount in entry.shed)


def test_certificate_and_true_cost() -> None:
    """Primal feasible, dual feasible, objectives that meet; and no more than 0.2 % above the least convex cost."""
    seen: Counter[str] = Counter()
    for seed in range(INSTANCES):
        instance = random_instance(seed)
        solution = solve(snapshot_of(instance), policy_ids(instance), fixed=instance["fixed"])
        assert solution.status == "Optimal", (seed, solution.message)
        oracle = Oracle(instance)
        cost, violation = oracle.primal(solution)
        bound, infeasibility = oracle.dual(solution)
        assert violation <= 1e-8, seed
        assert infeasibility <= 1e-8, seed
        assert abs(cost - bound) <= 1e-8 * cost, seed
        assert abs(cost - solution.objective) <= 1e-8 * cost, seed
        least = oracle.least_true_cost(solution)
        excess = (oracle.true_cost(solution) - least) / least
        assert -1e-4 <= excess <= 2e-3, seed
        _count(seen, instance, solution)
    assert min(seen.values()) >= 10, seen


def _count(seen: Counter[str], instance: Instance, solution: Solution) -> None:
    """The instances cover what they claim to."""
    shed = [sum(dict(entry.shed)[name] for entry in solution.sources) for name in ("batch", "interactive")]
    seen["shed batch only"] += shed[0] > 1e-6 >= shed[1]
    seen["shed both"] += shed[1] > 1e-6
    seen["no shed"] += max(shed) <= 1e-6
    seen["two policies"] += len(instance["policies"]) == 2
    seen["previous"] += bool(instance["previous"])
    seen["held back"] += any(route.saving > 1e-6 for route in solution.routes)
    seen["moved"] += any(route.moved > 1e-6 for route in solution.routes)
    seen["soft limit passed"] += any(engine.load > engine.soft * (1 + 1e-9) for engine in solution.engines)


def bumped(snapshot: Snapshot, index: int, by: float) -> Snapshot:
    """One source's demand changed by requests/s."""
    source = snapshot.demand[index]
    changed = msgspec.structs.replace(source, requests_per_second=source.requests_per_second + by)
    return msgspec.structs.replace(snapshot, demand=(*snapshot.demand[:index], changed, *snapshot.demand[index + 1 :]))


def test_marginal_costs_are_finite_differences() -> None:
    """What one more request costs, with movement prices on; where the next request is shed anywhere, it says so."""
    seen: Counter[str] = Counter()
    for seed in range(0, INSTANCES, 6):
        instance = random_instance(seed)
        snapshot, policies = snapshot_of(instance), policy_ids(instance)
        for index in (0, len(snapshot.demand) // 2):
            seen[_difference(instance, snapshot, policies, index)] += 1
    assert seen["two-sided"] >= 30, seen
    assert seen["shed"] >= 5, seen


def _difference(instance: Instance, snapshot: Snapshot, policies: tuple[str, ...], index: int) -> str:
    source = snapshot.demand[index]
    step = 1e-5 * source.requests_per_second
    here, more, less = (
        solve(bumped(snapshot, index, by), policies, fixed=instance["fixed"]) for by in (0.0, step, -step)
    )
    marginal = next(entry.marginal for entry in here.sources if entry.source == source.key)
    if marginal is None:
        assert total_shed(more) > total_shed(here)
        return "shed"
    up, down = (more.objective - here.objective) / step, (here.objective - less.objective) / step
    scale = max(1.0, abs(up))
    assert min(up, down) - 1e-6 * scale <= marginal <= max(up, down) + 1e-6 * scale
    return "two-sided" if abs(up - down) <= 1e-6 * scale else "one-sided"
