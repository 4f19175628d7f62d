"""Slow start of new capacity."""

from __future__ import annotations

import pytest

from headrace_operator.estimators.ramp import Ramp, observe


def test_present_at_the_first_reading_has_no_ramp() -> None:
    assert observe(None, 5.0, 4.0, 120.0, first=True).factor(5.0, 120.0) == 1.0


@pytest.mark.parametrize(
    ("age", "factor"), [(0.0, 0.125), (30.0, 0.25), (60.0, 0.5), (119.0, 0.875), (120.0, 1.0), (500.0, 1.0)]
)
def test_a_new_engine_is_phased_in(age: float, factor: float) -> None:
    assert observe(None, 10.0, 4.0, 120.0, first=False).factor(10.0 + age, 120.0) == factor


def test_only_what_is_new_ramps() -> None:
    ramp = observe(observe(None, 0.0, 3.0, 80.0, first=True), 10.0, 4.0, 80.0, first=True)
    assert ramp.factor(10.0, 80.0) == pytest.approx(3.125 / 4)
    assert ramp.factor(90.0, 80.0) == 1.0


def test_a_fall_takes_no_ramp_and_a_return_does() -> None:
    ramp = observe(None, 0.0, 4.0, 80.0, first=True)
    ramp = observe(ramp, 10.0, 0.0, 80.0, first=True)
    assert ramp.factor(10.0, 80.0) == 1.0
    ramp = observe(ramp, 20.0, 4.0, 80.0, first=True)
    assert ramp.factor(20.0, 80.0) == 0.125


def test_growth_during_a_ramp_starts_from_what_counts() -> None:
    ramp = observe(Ramp(2.0, 0.0, 0.0), 40.0, 4.0, 80.0, first=True)
    assert ramp.counted(40.0, 80.0) == pytest.approx(1.0 + 3.0 / 8)


def test_no_ramp_up_time() -> None:
    assert observe(None, 0.0, 4.0, 0.0, first=False).factor(0.0, 0.0) == 1.0
