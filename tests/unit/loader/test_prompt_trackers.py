"""Bytes a token, lengths and edges out of all routers' pages."""

from __future__ import annotations

import math

import pytest

from headrace_operator.estimators.liveness import Outcome
from headrace_operator.loader.demand import SourceName
from headrace_operator.loader.prompts import FIRST_REQUESTS, FIRST_TOKENS, PromptTrackers
from headrace_operator.loader.source import EngineTarget, LengthKey, RouterCounts, RouterTarget, TargetSample

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


NAME = SourceName("i/chat", "fe", "m")
INF = math.inf


def page(target: RouterTarget, at: float, *cumulative: float, policy: str = "i/chat") -> TargetSample:
    bounds = (100.0, 300.0, 600.0, 1000.0, 1500.0, INF)
    lengths = {LengthKey(policy, "m", bound): count for bound, count in zip(bounds, cumulative, strict=True)}
    return TargetSample(target, at, "Read", counts=RouterCounts(lengths=lengths))


def test_edges_come_with_the_thousandth_length() -> None:
    made = tracker()
    made.observe([page(ONE, 1, 160, 320, 480, 640, 800, 960)])
    assert made.edges == ()
    made.observe([page(ONE, 2, 170, 340, 510, 680, 850, 1020)])
    assert made.edges == (300, 1000)


def test_lengths_of_all_front_ends_choose_the_edges() -> None:
    made = tracker()
    made.observe([page(ONE, 1, 300, 600, 600, 600, 600, 600), page(TWO, 1, 0, 0, 300, 300, 600, 600)])
    assert made.edges == (100, 600)


def test_a_source_has_its_own_shares_once_it_has_lengths() -> None:
    made = tracker()
    made.restore([], (300, 1000))
    nothing = made.expected(NAME)
    assert [(one.share, one.input_tokens) for one in nothing] == [
        (pytest.approx(1 / 3), 150),
        (pytest.approx(1 / 3), 650),
        (pytest.approx(1 / 3), 1500),
    ]
    made.observe([page(TWO, 1, 0, 0, 0, 600, 600, 600)])
    assert [one.share for one in made.expected(NAME)] == [0, 1, 0]
    made.observe([page(ONE, 2, 100, 100, 100, 100, 100, 100)])
    short, middle, long = made.expected(NAME)
    assert short.share + middle.share + long.share == pytest.approx(1.0)
    # 100 of its own, and 50 that everybody's 100 to 600 stand for.
    assert short.share == pytest.approx((100 + 50 / 7) / 150, abs=1e-3)
    assert short.input_tokens == pytest.approx(50.0)


def test_a_first_page_of_lengths_does_not_outweigh_what_comes() -> None:
    made = tracker()
    made.observe([page(ONE, 1, *[n * 1e6 for n in (1, 2, 3, 4, 5, 6)])])
    assert made.edges == (300, 1000)
    share = FIRST_REQUESTS / 3
    assert made.expected(NAME)[0].share == pytest.approx(1 / 3)
    made.observe([page(ONE, 2, *[n * 1e6 + 2 * share for n in (1, 2, 3, 4, 5, 6)])])
    assert made.expected(NAME)[0].share == pytest.approx(0.6, abs=0.01)


def test_a_restarted_routers_lengths_begin_anew() -> None:
    made = tracker()
    made.restore([], (300, 1000))
    made.observe([page(ONE, 1, 0, 0, 0, 500, 500, 500)])
    made.observe([page(ONE, 2, 0, 500, 500, 500, 500, 500)])
    # No bucket of a histogram can shrink: 500 more below 300 with none more in all is another process.
    assert made.expected(NAME)[0].share == pytest.approx(0.5, abs=0.01)
    made.observe([page(ONE, 3, 0, 0, 0, 0, 0, 0)])
    assert made.expected(NAME)[0].share == pytest.approx(0.5, abs=0.01)


def test_edges_of_an_earlier_start_hold() -> None:
    made = tracker()
    made.restore([], (200, 900))
    assert made.edges == (200, 900)
    made.observe([page(ONE, 1, 40, 80, 120, 160, 200, 240)])
    assert made.edges == (200, 900)
