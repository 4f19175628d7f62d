"""Windows over the pages of replicas, and the figures of an engine."""

from __future__ import annotations

import math

import pytest

from headrace_operator.estimators.replica import EngineFigures, PageReading, ReplicaWindow, Signal, combine


def window(*pages: tuple[float, dict[Signal, float]], span: float = 60.0) -> ReplicaWindow:
    made = ReplicaWindow(span)
    for at, values in pages:
        made.observe(PageReading(at, values))
    return made


def test_means_come_from_sum_and_count() -> None:
    seen = combine(
        [window((0, {"ttft_sum": 10.0, "ttft_count": 100.0}), (10, {"ttft_sum": 14.0, "ttft_count": 120.0}))]
    )
    assert (seen.ttft, seen.ttft_count) == (0.2, 20.0)


def test_histograms_of_replicas_are_added_before_dividing() -> None:
    one = window((0, {"tbot_sum": 0.0, "tbot_count": 0.0}), (10, {"tbot_sum": 1.0, "tbot_count": 90.0}))
    two = window((0, {"tbot_sum": 0.0, "tbot_count": 0.0}), (10, {"tbot_sum": 1.0, "tbot_count": 10.0}))
    assert combine([one, two]).tbot == pytest.approx(2.0 / 100.0)


def test_the_window_slides() -> None:
    seen = window(*((float(at), {"finished": 2.0 * at}) for at in range(200)), span=20.0)
    assert (len(seen.readings), seen.seconds(), seen.interval()) == (21, 20.0, 1.0)
    assert combine([seen]).request_rate == 2.0


def test_a_reset_of_any_counter_begins_anew() -> None:
    """Case PRM-05: after a restart the old process' numbers are no part of the new ones."""
    pages: list[tuple[float, dict[Signal, float]]] = [
        (0, {"finished": 900.0, "generation_tokens": 10.0}),
        (5, {"finished": 910.0, "generation_tokens": 20.0}),
        (10, {"finished": 3.0, "generation_tokens": 30.0}),
    ]
    seen = window(*pages)
    assert combine([seen]).request_rate is None
    seen.observe(PageReading(15, {"finished": 13.0, "generation_tokens": 40.0}))
    assert combine([seen]).request_rate == 2.0


def test_a_reset_behind_a_page_that_lacked_the_counter() -> None:
    seen = window((0, {"finished": 900.0}), (5, {"running": 1.0}), (10, {"finished": 3.0}), (15, {"finished": 13.0}))
    assert combine([seen]).request_rate == 2.0


def test_a_frozen_page_ages_from_when_it_last_moved() -> None:
    frozen: dict[Signal, float] = {"finished": 10.0, "running": 3.0}
    assert combine([window((0, {"finished": 5.0}), (5, frozen), (10, frozen), (15, frozen))]).at == 5


def test_an_idle_page_is_fresh() -> None:
    idle: dict[Signal, float] = {"finished": 10.0, "running": 0.0, "waiting": 0.0}
    assert combine([window((0, idle), (5, idle), (10, idle))]).at == 10


def test_standing_still_without_word_on_running_requests_is_not_fresh() -> None:
    assert combine([window((0, {"finished": 1.0}), (5, {"finished": 1.0}))]).at == 0


def test_older_and_repeated_readings_change_nothing() -> None:
    seen = window((0, {"finished": 1.0}), (5, {"finished": 2.0}))
    assert not seen.observe(PageReading(5, {"finished": 9.0}))
    assert not seen.observe(PageReading(math.nan, {"finished": 9.0}))
    assert combine([seen]).request_rate == 0.2


def test_values_that_no_exporter_measures_are_unknown() -> None:
    """Case LP-04: NaN, infinite and negative values are unknown. https://github.com/coin-or/pulp/issues/855"""
    bad: dict[Signal, float] = {"running": math.nan, "kv_usage": math.inf, "waiting": -1.0, "hit_rate": -1.0}
    assert combine([window((0, bad))]) == EngineFigures(at=0)


def test_sums_are_scaled_where_a_replica_is_not_read() -> None:
    """Nothing unknown counts as zero: two of four replicas were read, so the engine has twice what they show."""
    known = [window((0, {"running": 3.0})), window((0, {"running": 5.0}))]
    assert combine([*known, window(), window()]).running == 16.0


def test_never_read_is_unknown() -> None:
    """Case STA-01: an engine that was never read is unknown, not idle.

    https://github.com/llm-d/llm-d-router/pull/2848
    """
    assert combine([window()]) == EngineFigures()
    assert combine([]) == EngineFigures()
    assert window().last is None


def test_a_sample_of_zero_is_idle() -> None:
    """Case STA-01: a real sample of 0 is idle, and one missing signal is unknown beside it."""
    seen = combine([window((0, {"running": 0.0}))])
    assert (seen.running, seen.waiting) == (0.0, None)


def looked_up(hits: float, queries: float) -> ReplicaWindow:
    return window(
        (0, {"prefix_hits": 0.0, "prefix_queries": 0.0}), (5, {"prefix_hits": hits, "prefix_queries": queries})
    )


@pytest.mark.parametrize(
    ("pages", "share"),
    [
        pytest.param(looked_up(6_000, 8_000), None, id="too few tokens to believe"),
        pytest.param(looked_up(9_000, 12_000), 0.75, id="counted"),
        pytest.param(looked_up(13_000, 12_000), 1.0, id="never more than all"),
        pytest.param(window((0, {"hit_rate": 0.4})), 0.4, id="a gauge where nothing is counted"),
        pytest.param(window((0, {"prefix_hits": 1.0}), (5, {"prefix_hits": 2.0})), None, id="half of a pair"),
    ],
)
def test_hit_share(pages: ReplicaWindow, share: float | None) -> None:
    assert combine([pages]).hit_share == share


def test_hit_share_is_a_slow_mean_whatever_the_window() -> None:
    """A share over the few seconds of the window swings with single conversations, and would move weights."""
    seen, hits, queries = ReplicaWindow(5.0), 0.0, 0.0
    shares = []
    for at in range(300):
        seen.observe(PageReading(float(at), {"prefix_hits": hits, "prefix_queries": queries}))
        hits += 900.0 if at % 10 < 5 else 100.0
        queries += 1000.0
        shares.append(combine([seen]).hit_share)
    settled = [share for share in shares[100:] if share is not None]
    assert len(settled) == 200
    assert max(settled) - min(settled) < 0.05


def test_request_rate_has_the_deviation_of_a_count() -> None:
    seen = combine([window((0, {"finished": 0.0}), (10, {"finished": 90.0}))])
    assert (seen.request_rate, seen.request_rate_deviation) == (9.0, pytest.approx(0.3 * 10**0.5))
    assert combine([window((0, {"finished": 0.0}), (10, {"finished": 0.0}))]).request_rate_deviation == 0.1
    assert combine([window((0, {"finished": 0.0}))]).request_rate_deviation == 0.0


def test_error_share() -> None:
    pages = window((0, {"finished": 0.0, "failed": 0.0}), (5, {"finished": 10.0, "failed": 4.0}))
    assert combine([pages]).error_share == 0.4
    assert combine([window((0, {"finished": 0.0}), (5, {"finished": 10.0}))]).error_share is None


def test_kv_usage_is_averaged() -> None:
    assert combine([window((0, {"kv_usage": 0.2})), window((0, {"kv_usage": 0.6}))]).kv_usage == pytest.approx(0.4)


def test_running_is_averaged_over_the_window() -> None:
    one = window((0, {"running": 2.0}), (5, {"running": 6.0}), (10, {"waiting": 1.0}))
    assert combine([one, window()]).mean_running == 8.0
    assert combine([window((0, {"waiting": 1.0}))]).mean_running is None
