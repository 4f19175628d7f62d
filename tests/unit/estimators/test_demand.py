"""The demand estimator: follows slowly, resets on a shift, knows how sure it is."""

from __future__ import annotations

import math
import random

import pytest

from headrace_operator.estimators.counters import Increase
from headrace_operator.estimators.demand import TAU, DecayingSum, DemandEstimate, observe


def run(rates: list[float], seconds: float = 1.0) -> DemandEstimate:
    estimate: DemandEstimate | None = None
    for step, rate in enumerate(rates):
        estimate = observe(estimate, (step + 1) * seconds, Increase(rate * seconds, seconds))
    assert estimate is not None
    return estimate


def poisson(rng: random.Random, mean: float) -> float:
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count, product = count + 1, product * rng.random()
    return float(count)


def test_first_reading_stands_for_itself_with_a_poisson_deviation() -> None:
    estimate = run([16.0])
    assert (estimate.level, estimate.deviation) == (16.0, 4.0)


def test_even_demand_is_found_exactly() -> None:
    estimate = run([50.0] * 100)
    assert estimate.level == pytest.approx(50.0)
    assert estimate.deviation < 1.0


def test_noise_is_averaged() -> None:
    rng = random.Random(7)
    estimate = run([poisson(rng, 30.0) for _ in range(300)])
    assert abs(estimate.level - 30.0) < 4 * estimate.deviation
    assert 0.1 < estimate.deviation < 2.0


@pytest.mark.parametrize(("before", "after"), [(40.0, 60.0), (60.0, 30.0)], ids=["surge", "drop"])
def test_a_shift_is_taken_up_long_before_tau(before: float, after: float) -> None:
    rng = random.Random(3)
    calm = [poisson(rng, before) for _ in range(120)]
    moved = [poisson(rng, after) for _ in range(12)]
    estimate = run(calm + moved)
    assert abs(estimate.level - after) < abs(estimate.level - before)


def test_one_odd_reading_moves_little() -> None:
    rng = random.Random(5)
    estimate = run([poisson(rng, 40.0) for _ in range(120)] + [55.0])
    assert estimate.level < 43.0


@pytest.mark.parametrize(
    ("at", "reading"),
    [
        pytest.param(100.0, Increase(9.0, 1.0), id="same time"),
        pytest.param(99.0, Increase(9.0, 1.0), id="older"),
        pytest.param(math.nan, Increase(9.0, 1.0), id="no time"),
        pytest.param(101.0, Increase(math.nan, 1.0), id="NaN"),
        pytest.param(101.0, Increase(-4.0, 1.0), id="negative"),
        pytest.param(101.0, Increase(4.0, 0.0), id="no interval"),
    ],
)
def test_what_is_no_new_reading_changes_nothing(at: float, reading: Increase) -> None:
    """Case LP-04: one NaN must not spoil what is known. https://github.com/coin-or/pulp/issues/855"""
    estimate = observe(run([10.0] * 3), 100.0, Increase(10.0, 1.0))
    assert observe(estimate, at, reading) == estimate


def test_demand_from_zero() -> None:
    estimate = run([0.0] * 60 + [20.0, 20.0, 20.0])
    assert estimate.level == pytest.approx(20.0)


def test_decaying_sum_forgets_and_ignores_what_is_not_newer() -> None:
    total = DecayingSum().add(0.0, 4.0)
    assert total.add(TAU, 1.0).value == pytest.approx(4.0 / math.e + 1.0)
    assert total.add(0.0, 1.0) == total
    assert total.add(5.0, math.nan) == total
    assert total.add(math.inf, 1.0) == total
