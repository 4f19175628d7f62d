"""Increases of counters, and when they are unknown."""

from __future__ import annotations

import math

import pytest

from headrace_operator.estimators.counters import Increase, Sample, increase, is_measured, mean_of


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        pytest.param(Sample(0, 10), Sample(5, 30), Increase(20, 5), id="grows"),
        pytest.param(Sample(0, 10), Sample(5, 10), Increase(0, 5), id="idle is zero, not unknown"),
        pytest.param(None, Sample(5, 10), None, id="no earlier"),
        pytest.param(Sample(0, 10), None, None, id="no later"),
        pytest.param(Sample(5, 10), Sample(5, 20), None, id="same time"),
        pytest.param(Sample(5, 10), Sample(4, 20), None, id="older"),
        pytest.param(Sample(0, math.nan), Sample(5, 20), None, id="NaN before"),
        pytest.param(Sample(0, 1), Sample(5, math.inf), None, id="infinite"),
        pytest.param(Sample(0, -1), Sample(5, 3), None, id="negative"),
        pytest.param(Sample(0, 1), Sample(math.inf, 3), None, id="no time"),
        pytest.param(Sample(0, 1), Sample(math.nan, 3), None, id="time is NaN"),
    ],
)
def test_increase(earlier: Sample | None, later: Sample | None, expected: Increase | None) -> None:
    assert increase(earlier, later) == expected


def test_reset_gives_no_negative_rate() -> None:
    """Case PRM-05: a counter falls from 900 to 3 when its process restarts; that is unknown, never negative.

    https://github.com/prometheus/prometheus/issues/9221
    """
    assert increase(Sample(0, 900), Sample(15, 3)) is None


def test_rate() -> None:
    assert Increase(30, 5).per_second == 6


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [(3.0, 2.0, 1.5), (0.0, 4.0, 0.0), (3.0, 0.0, None), (None, 2.0, None), (3.0, None, None), (math.nan, 2.0, None)],
)
def test_mean_of(total: float | None, count: float | None, expected: float | None) -> None:
    assert mean_of(total, count) == expected


@pytest.mark.parametrize(
    ("value", "measured"),
    [(0.0, True), (None, False), (math.nan, False), (math.inf, False), (-1e-9, False), (1e16, False)],
)
def test_is_measured(value: float | None, measured: bool) -> None:
    assert is_measured(value) is measured
