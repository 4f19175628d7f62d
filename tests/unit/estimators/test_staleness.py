"""The ladder of ages."""

from __future__ import annotations

import math

import pytest

from headrace_operator.estimators.staleness import (
    FLOOR,
    Rung,
    Thresholds,
    ladder,
    observed_interval,
    relative_factors,
    thresholds,
)

LIMITS = Thresholds(30.0, 120.0)


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(None, Rung("Unknown", 1.0), id="never measured keeps the declared capacity"),
        pytest.param(math.nan, Rung("Unknown", 1.0), id="NaN"),
        pytest.param(0.0, Rung("Fresh", 1.0), id="new"),
        pytest.param(30.0, Rung("Fresh", 1.0), id="hold"),
        pytest.param(31.0, Rung("Held", 1.0), id="held"),
        pytest.param(120.0, Rung("Held", 1.0), id="degrade"),
        pytest.param(121.0, Rung("Widened", 0.875), id="shrinks in steps"),
        pytest.param(200.0, Rung("Widened", 0.625), id="shrinks further"),
        pytest.param(240.0, Rung("Widened", 0.5), id="last step"),
        pytest.param(241.0, Rung("Unknown", FLOOR), id="lost"),
    ],
)
def test_ladder(age: float | None, expected: Rung) -> None:
    assert ladder(age, LIMITS) == expected


def test_ladder_without_patience() -> None:
    assert ladder(1.0, Thresholds(0.0, 0.0)) == Rung("Unknown", FLOOR)


def test_calm_at_a_slow_scrape() -> None:
    """The protection page: at a scrape interval of 30 s nothing flips in 10 calm minutes."""
    interval = observed_interval([30.0 * step for step in range(21)])
    limits = thresholds(30.0, 120.0, interval)
    assert limits == Thresholds(90.0, 240.0)
    assert {ladder(float(age), limits).state for age in range(60)} == {"Fresh"}


def test_thresholds_stay_in_order() -> None:
    assert thresholds(300.0, 120.0, 0.0) == Thresholds(300.0, 300.0)


def test_observed_interval() -> None:
    assert observed_interval([1.0]) == 0.0
    assert observed_interval([0.0, 5.0, 5.0, 10.0, 30.0]) == 5.0
    often = [5.0 * step for step in range(16)]
    assert observed_interval([*often, 105.0, 135.0]) == 30.0  # slower since: the second gap says so
    assert observed_interval([*often, 275.0, 280.0, 285.0]) == 5.0  # an outage that is over


@pytest.mark.parametrize("engines", [1, 3])
def test_a_lost_source_is_not_the_engines_fault(engines: int) -> None:
    """Case STA-02: with metrics down for all engines of a pool of one or three, traffic goes on as it was.

    The page rules where the case asks to decay to equal weights: we hold. https://github.com/llm-d/llm-d-router/issues/2408
    """
    rungs = {f"e{number}": ladder(600.0, LIMITS) for number in range(engines)}
    assert set(relative_factors(rungs).values()) == {1.0}


def test_one_lost_engine_of_three_shrinks() -> None:
    rungs = {"a": ladder(1.0, LIMITS), "b": ladder(1.0, LIMITS), "c": ladder(600.0, LIMITS)}
    assert relative_factors(rungs) == {"a": 1.0, "b": 1.0, "c": FLOOR}
