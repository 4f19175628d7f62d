"""Bytes a token out of all routers' pages."""

from __future__ import annotations

import pytest

from headrace_operator.estimators.liveness import Outcome
from headrace_operator.loader.prompts import FIRST_TOKENS, PromptTrackers
from headrace_operator.loader.source import EngineTarget, RouterCounts, RouterTarget, TargetSample

ONE, TWO = RouterTarget("fe", "http://r1"), RouterTarget("fe-b", "http://r2")


def usage(target: RouterTarget, at: float, body_bytes: float, tokens: float, outcome: Outcome = "Read") -> TargetSample:
    counts = RouterCounts(usage_bytes={"m": body_bytes}, usage_tokens={"m": tokens})
    return TargetSample(target, at, outcome, counts=counts)


def tracker() -> PromptTrackers:
    made = PromptTrackers()
    made.retarget([ONE, TWO])
    return made


def ratio(made: PromptTrackers) -> float | None:
    return dict(made.bytes_per_token()).get("m")


def test_routers_are_added_also_where_they_were_read_at_one_instant() -> None:
    made = tracker()
    made.observe([usage(ONE, 1, 60_000, 20_000), usage(TWO, 1, 100_000, 20_000)])
    assert made.bytes_per_token() == (("m", 4.0),)


def test_only_what_came_since_the_last_page_counts() -> None:
    made = tracker()
    made.observe([usage(ONE, 1, 0, 0)])
    assert ratio(made) is None
    made.observe([usage(ONE, 2, 90_000, 30_000)])
    made.observe([usage(ONE, 3, 90_000, 30_000), usage(ONE, 2.5, 1, 1)])
    assert ratio(made) == 3.0
    made.observe([usage(ONE, 4, 90_000 + 1_000_000, 30_000 + 200_000)])
    assert ratio(made) == pytest.approx(4.74, abs=0.01)


def test_a_first_page_counts_but_does_not_outweigh_what_comes() -> None:
    """An operator that starts anew beside routers of last week knows the ratio at once, and still learns."""
    made = tracker()
    made.observe([usage(ONE, 1, 3e9, 1e9)])
    assert ratio(made) == 3.0
    made.observe([usage(ONE, 2, 3e9 + 10 * FIRST_TOKENS, 1e9 + 2 * FIRST_TOKENS)])
    assert ratio(made) == pytest.approx((3 + 10) / 3, abs=0.01)


def test_a_restarted_router_begins_anew() -> None:
    made = tracker()
    made.observe([usage(ONE, 1, 90_000, 30_000)])
    made.observe([usage(ONE, 2, 50_000, 10_000)])
    assert ratio(made) == pytest.approx(140 / 40)


def test_what_was_not_read_says_nothing() -> None:
    made = tracker()
    counts = RouterCounts(usage_tokens={"m": 30_000.0})
    made.observe(
        [
            usage(ONE, 1, 90_000, 30_000, "Answered"),
            TargetSample(ONE, 2, "Read"),
            TargetSample(EngineTarget("i/e", "http://e", {}, frozenset()), 3, "Read"),
            TargetSample(TWO, 4, "Read", counts=counts),
        ]
    )
    assert made.bytes_per_token() == ()


def test_an_earlier_start_is_taken_up() -> None:
    made = tracker()
    made.restore([("m", 3.3)])
    assert ratio(made) == 3.3
    made.observe([usage(ONE, 1, 500, 100)])
    assert ratio(made) == 3.3
    made.observe([usage(ONE, 2, 100_500, 20_100)])
    assert ratio(made) == 5.0


def test_a_router_that_goes_and_comes_back_is_a_new_one() -> None:
    made = tracker()
    made.observe([usage(ONE, 1, 90_000, 30_000)])
    made.retarget([TWO])
    made.retarget([ONE, TWO])
    made.observe([usage(ONE, 2, 150_000, 30_000)])
    assert ratio(made) == 4.0
