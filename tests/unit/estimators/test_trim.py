"""Trims: measured token time beside the profile's, in steps, and never against a profile that is wrong for all."""

from __future__ import annotations

import math

import pytest

from headrace_operator.estimators.trim import HALF_LIFE, LEAST, MOST, SETTLED, Trim, drift, enough, observe, reason


def after(*ratios: float | None, trim: Trim | None = None, every: float = 5.0) -> Trim:
    trim = trim or Trim()
    at = max(0.0, trim.at)
    for ratio in ratios:
        at += every
        trim = observe(trim, at, ratio)
    return trim


def test_a_slow_engine_is_found_within_a_few_samples() -> None:
    """The optimizer's page, Estimators: gain 0.3."""
    assert after(1 / 3).factor == pytest.approx(1 - 0.3 * 2 / 3)
    assert after(*[1 / 3] * 5).factor == pytest.approx(1 / 3 + 2 / 3 * 0.7**5)
    assert after(*[1 / 3] * 30).told == pytest.approx(0.35, abs=0.1)


@pytest.mark.parametrize(("ratio", "limit"), [(0.0, LEAST), (100.0, MOST)])
def test_within_limits(ratio: float, limit: float) -> None:
    assert after(*[ratio] * 50).factor == pytest.approx(limit)


def test_noise_is_not_told() -> None:
    assert after(*[0.9, 1.1] * 50).told == 1.0


def test_told_in_steps_that_do_not_swing() -> None:
    trim = after(*[0.58] * 50)
    assert trim.told == pytest.approx(0.58, abs=0.1)
    assert after(*[0.54, 0.62] * 50, trim=trim).told == trim.told
    assert after(*[0.93] * 50, trim=trim).told == 1.0


def test_a_profile_that_is_nearly_right_is_right() -> None:
    assert after(*[0.86] * 50).told == 1.0
    assert after(*[0.8] * 50).told == 0.85


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_it_decays_without_traffic(unknown: float | None) -> None:
    """The protection page: a half-life of ten minutes; what is unknown is no sample."""
    trim = after(*[0.5] * 50)
    later = observe(trim, trim.at + HALF_LIFE, unknown)
    assert later.factor == pytest.approx(0.75)
    assert later.samples == trim.samples
    assert observe(later, later.at + 20 * HALF_LIFE, None).told == 1.0


def test_a_first_reading_without_traffic() -> None:
    assert after(None) == Trim(at=5.0)


def test_a_reading_that_is_not_newer_changes_nothing() -> None:
    trim = after(0.5)
    assert observe(trim, trim.at, 0.1) is trim


@pytest.mark.parametrize(
    ("tokens", "prompts", "seconds", "token_time", "expected"),
    [
        (200, 40, 1.0, 0.05, True),
        (199, 40, 1.0, 0.05, False),
        (200, 39, 1.0, 0.05, False),
        (200, 40, 0.9, 0.05, False),
        (200, 40, 1.0, None, False),
        (200, 40, 1.0, 0.0, False),
    ],
)
def test_what_makes_a_sample(
    tokens: float, prompts: float, seconds: float, token_time: float | None, expected: bool
) -> None:
    assert enough(tokens, prompts, seconds, token_time) is expected


def settled(factor: float) -> Trim:
    return Trim(factor, SETTLED)


@pytest.mark.parametrize(
    ("factors", "drifting", "expected"),
    [
        pytest.param([], False, None, id="nothing seen"),
        pytest.param([0.8], False, 0.8, id="one alone"),
        pytest.param([0.3, 1.0], False, None, id="one slow of two"),
        pytest.param([0.8, 0.7], False, 0.75, id="both slow"),
        pytest.param([0.3, 0.95, 1.0], False, None, id="the median is right"),
        pytest.param([0.3, 0.8, 1.0], False, 0.8, id="the median is off"),
        pytest.param([1.2, 1.3, 0.9], False, 1.2, id="faster than said"),
        pytest.param([0.5, 1.5], False, None, id="not the same way"),
        pytest.param([0.87, 0.88], False, None, id="within 15 %"),
        pytest.param([0.87, 0.88], True, 0.875, id="goes on down to 10 %"),
        pytest.param([0.92, 0.88], True, None, id="is over"),
    ],
)
def test_drift(factors: list[float], drifting: bool, expected: float | None) -> None:
    found = drift([settled(factor) for factor in factors], drifting=drifting)
    assert found == (None if expected is None else pytest.approx(expected))


def test_drift_is_not_judged_by_a_first_glance() -> None:
    assert drift([Trim(0.5, SETTLED - 1)], drifting=False) is None


def test_reasons() -> None:
    assert reason(0.35) == "each token takes 2.9 times what its profile says"
    assert reason(1.2) == "makes tokens 1.2 times as fast as its profile says"
