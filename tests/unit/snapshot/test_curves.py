"""Latency curves and their slopes, against integrals and hulls computed another way."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.spatial import ConvexHull

from headrace_api.engine import Profile, ProfilePoint
from headrace_operator.snapshot.curves import (
    BACKLOG_SECONDS,
    FIRST_BREAKPOINTS,
    SEGMENTS,
    averaged_slopes,
    curve_bank,
    declared_curves,
    hull_slopes,
    reference_curve,
    target_slopes,
)
from support.fleet import FLAT, RISING, profile

STEEP = profile({0: 50, 90: 100, 97: 4_000, 99: 40_000, 100: 90_000}, {0: 10, 100: 20}, (900, 220))


def latency(shape: Profile, output: float, at: float) -> float:
    ttft, tbot = declared_curves(shape)
    return float(ttft(at) + output * tbot(at))


def averaged(shape: Profile, output: float, work: float, trim: float, at: float) -> float:
    """G at a utilisation, by numeric integration of its slope and a dense normal average."""
    step = 1e-6

    def slope(u: float) -> float:
        if u <= 0:
            return 0.0
        rise = (latency(shape, output, u + step) - latency(shape, output, u - step)) / (2 * step)
        own = (latency(shape, output, u) - latency(shape, output, 0.0) + u * rise) / (work * trim)
        return max(own, BACKLOG_SECONDS / work) if u > 0.98 else own

    knots = [0.5, 0.8, 0.9, 0.97, 0.98, 0.99, 1.0]
    nodes, weights = np.polynomial.hermite.hermgauss(9)
    total = 0.0
    for node, weight in zip(nodes, weights, strict=True):
        end = at + np.sqrt(2) * 0.02 * node
        if end > 0:
            value, _ = quad(slope, 0.0, end, points=[knot for knot in knots if knot < end] or None, limit=200)
            total += weight / weights.sum() * value
    return total


@pytest.mark.parametrize("shape", [RISING, STEEP], ids=["rising", "steeper-than-the-backlog"])
@pytest.mark.parametrize("trim", [1.0, 0.6])
def test_averaged_slopes_are_those_of_the_integral(shape: Profile, trim: float) -> None:
    work, output = 0.05, 220.0
    bank = curve_bank([reference_curve(shape, output)])
    slopes = averaged_slopes(bank, np.array([work]), np.array([trim]))[0]
    at = bank.at[0]
    heights = np.array([averaged(shape, output, work, trim, float(mark)) for mark in at])
    own = np.diff(heights) / np.where(np.diff(at) > 0, np.diff(at), 1.0)
    if (np.diff(own) >= 0).all():
        assert slopes == pytest.approx(own, rel=2e-4, abs=1e-6)
    else:  # the hull can only lower the curve
        floor = np.concatenate([[0.0], np.cumsum(slopes * np.diff(at))])
        assert (floor <= heights - heights[0] + 1e-4 * heights.max()).all()


def test_flat_profile_costs_nothing_until_the_backlog_begins() -> None:
    bank = curve_bank([reference_curve(FLAT, 220.0)])
    slopes = averaged_slopes(bank, np.array([0.01]), np.array([1.0]))[0]
    starts = bank.at[0][:-1]
    assert np.abs(slopes[starts < 0.8]).max() == pytest.approx(0.0, abs=1e-9)
    assert slopes[-1] > 0.3 * BACKLOG_SECONDS / 0.01
    assert (np.diff(slopes[np.diff(bank.at[0]) > 0]) >= -1e-9).all()


def test_flat_profile_with_a_target_costs_nothing_at_all() -> None:
    bank = curve_bank([reference_curve(FLAT, 220.0)])
    slopes = target_slopes(bank.target_at, bank.target_latency, bank.unloaded, np.array([0.01]), np.array([1.0]))
    assert (slopes == 0.0).all()


def test_target_slopes_are_secants_of_the_profile() -> None:
    bank = curve_bank([reference_curve(RISING, 220.0)])
    slopes = target_slopes(bank.target_at, bank.target_latency, bank.unloaded, np.array([0.05]), np.array([0.5]))[0]
    marks = bank.target_at[0]
    heights = [mark * (latency(RISING, 220.0, mark) - latency(RISING, 220.0, 0.0)) / (0.05 * 0.5) for mark in marks]
    assert slopes == pytest.approx(np.diff(heights) / np.diff(marks), rel=1e-9)


def test_breakpoints_begin_with_the_designs_and_add_the_profiles_bends() -> None:
    curve = reference_curve(RISING, 220.0)
    for marks in (curve.at, curve.target_at):
        assert marks.shape == (SEGMENTS + 1,)
        assert (np.diff(marks) >= 0).all()
        assert set(FIRST_BREAKPOINTS) <= set(marks)
    assert 0.8 in curve.target_at


def test_hull_is_the_lower_convex_hull_and_never_falls() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        at = np.sort(rng.uniform(0, 1, 12))
        at[0], at[-1] = 0.0, 1.0
        height = np.cumsum(rng.uniform(0, 1, 12))
        slopes = hull_slopes(at[None, :], height[None, :])[0]
        floor = height[0] + np.concatenate([[0.0], np.cumsum(slopes * np.diff(at))])
        hull = ConvexHull(np.column_stack([at, height]))
        lower = sorted({int(v) for simplex in hull.simplices[hull.equations[:, 1] < 0] for v in simplex})
        assert floor == pytest.approx(np.interp(at, at[lower], height[lower]))
        assert (np.diff(slopes) >= -1e-9).all()


def test_a_falling_curve_is_flat_not_a_reward() -> None:
    slopes = hull_slopes(np.array([[0.0, 0.5, 1.0]]), np.array([[0.0, -1.0, -0.5]]))[0]
    assert list(slopes) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("shape", "bent"),
    [
        pytest.param(FLAT, False, id="flat"),
        pytest.param(RISING, False, id="convex"),
        pytest.param(STEEP, False, id="steep"),
        pytest.param(profile({}), False, id="none"),
        pytest.param(profile({0: 100, 20: 400, 100: 410}), True, id="early-knee"),
        pytest.param(profile({0: 400, 100: 100}), True, id="falling"),
    ],
)
def test_only_profiles_that_are_not_convex_and_rising_are_named(shape: Profile, bent: bool) -> None:
    assert reference_curve(shape, 220.0).bent is bent


def test_curves_are_flat_beyond_their_ends_and_in_order_of_utilisation() -> None:
    ttft, tbot = declared_curves(profile({80: 400, 20: 100}))
    assert [float(ttft(at)) for at in (0.0, 0.2, 0.5, 0.8, 1.5)] == pytest.approx([0.1, 0.1, 0.25, 0.4, 0.4])
    assert float(tbot(0.5)) == 0.0


def test_absurd_latencies_are_capped_at_a_day() -> None:
    ttft, _ = declared_curves(Profile(ttft=(ProfilePoint(utilization_percent=0, latency="9999h"),)))
    assert float(ttft(0.0)) == 86_400.0


def test_an_empty_bank_has_the_right_shape() -> None:
    bank = curve_bank([])
    assert averaged_slopes(bank, np.zeros(0), np.zeros(0)).shape == (0, SEGMENTS)
