"""Round trips that routers measure: the median over them, enough samples, and no move for noise."""

from __future__ import annotations

import math
import random

import pytest

from headrace_operator.loader.pages import router_page
from headrace_operator.loader.round_trips import RoundTripTrackers
from headrace_operator.loader.source import RouterCounts, RouterTarget, TargetSample


def said(router: str, at: float, seconds: float, samples: float = 5.0) -> TargetSample:
    counts = RouterCounts(round_trips={"inf/a": (seconds, samples)})
    return TargetSample(RouterTarget("fe", router), at, "Read", counts=counts)


def told(trackers: RoundTripTrackers, now: float = 0.0) -> float | None:
    found = trackers.signals(now)
    return found[0].seconds.value if found else None


def test_the_median_over_routers() -> None:
    trackers = RoundTripTrackers()
    trackers.observe([said("r1", 0.0, 0.010), said("r2", 0.0, 0.011), said("r3", 0.0, 0.5)])
    (signal,) = trackers.signals(2.0)
    assert (signal.frontend, signal.engine, signal.seconds.value, signal.seconds.age) == ("fe", "inf/a", 0.011, 2.0)


@pytest.mark.parametrize(
    ("seconds", "samples"), [(0.01, 4.0), (math.nan, 9.0), (0.0, 9.0), (-1.0, 9.0), (math.inf, 9.0), (100.0, 9.0)]
)
def test_too_few_samples_or_no_time_is_unknown(seconds: float, samples: float) -> None:
    trackers = RoundTripTrackers()
    trackers.observe([said("r1", 0.0, seconds, samples)])
    assert told(trackers) is None


def test_noise_moves_nothing_and_a_real_move_does() -> None:
    """Case WEI-04: noise of a few percent leaves what is told as it is. https://github.com/hawkv6/hawkeye/issues/9"""
    rng = random.Random(7)
    trackers = RoundTripTrackers()
    values = set()
    for step in range(200):
        at = step * 15.0
        trackers.observe([said(f"r{number}", at, 0.030 * rng.uniform(0.95, 1.05)) for number in range(3)])
        values.add(told(trackers, at))
    assert len(values) == 1
    trackers.observe([said(f"r{number}", 3000.0, 0.080) for number in range(3)])
    assert told(trackers, 3000.0) == 0.080


def test_a_router_that_went_counts_no_more() -> None:
    trackers = RoundTripTrackers()
    trackers.observe([said("r1", 0.0, 0.010)])
    assert told(trackers, 599.0) == 0.010
    assert told(trackers, 601.0) is None


def test_as_a_page_says_it() -> None:
    page = (
        'headrace_offered_requests_total{frontend="fe",policy_namespace="inf",policy="chat",model="m"} 1\n'
        'headrace_round_trip_seconds{frontend="fe",engine="inf/a"} 0.012\n'
        'headrace_round_trip_samples{frontend="fe",engine="inf/a"} 5\n'
        'headrace_round_trip_seconds{frontend="fe",engine="inf/b"} NaN\n'
        'headrace_endpoints{engine="inf/a"} 3\n'
    )
    counts, problem = router_page(page, "fe")
    assert problem == ""
    assert counts.round_trips == {"inf/a": (0.012, 5.0)}
