"""Demand out of the counters of all routers of a front-end."""

from __future__ import annotations

import pytest

from headrace_operator.estimators.liveness import Outcome
from headrace_operator.estimators.staleness import Thresholds
from headrace_operator.loader.demand import DemandTrackers, DemandView
from headrace_operator.loader.source import DemandKey, RouterCounts, RouterTarget, TargetSample
from headrace_operator.snapshot.signals import Share

ONE, TWO = RouterTarget("fe", "http://r1"), RouterTarget("fe", "http://r2")
KEY = DemandKey("i/chat", "m", "default")
LIMITS = {"i/chat": Thresholds(30.0, 120.0)}


def page(target: RouterTarget, at: float, offered: float, outcome: Outcome = "Read", **more: float) -> TargetSample:
    counts = RouterCounts(offered={KEY: offered}, **{name: {KEY: value} for name, value in more.items()})
    return TargetSample(target, at, outcome, counts=counts if outcome == "Read" else None)


def tracker(*targets: RouterTarget) -> DemandTrackers:
    made = DemandTrackers()
    made.retarget(targets)
    return made


def only(views: list[DemandView]) -> DemandView:
    assert len(views) == 1
    return views[0]


def rate(made: DemandTrackers, now: float) -> float:
    signal = only(made.views(now, LIMITS)).signal
    assert signal is not None
    return signal.requests_per_second.value


def feed(made: DemandTrackers, *samples: TargetSample, shedding: tuple[str, ...] = ()) -> None:
    made.observe(samples, shedding)


def test_nothing_before_two_readings() -> None:
    made = tracker(ONE)
    feed(made, page(ONE, 0, 100))
    assert made.views(0, LIMITS) == []
    feed(made, page(ONE, 10, 150))
    assert rate(made, 10) == 5.0


def test_few_requests_are_believed_only_after_three_readings() -> None:
    """A first second of 5 requests (give or take 2) must not replace what was declared."""
    made = tracker(ONE)
    for at, offered, known in ((0, 0, False), (1, 5, False), (2, 9, False), (3, 15, True)):
        feed(made, page(ONE, at, offered))
        assert bool(made.views(at, LIMITS)) is known
    assert rate(made, 3) == pytest.approx(5.0)


def test_routers_are_added() -> None:
    made = tracker(ONE, TWO)
    feed(made, page(ONE, 0, 0), page(TWO, 0.5, 0), page(ONE, 10, 50), page(TWO, 10.5, 30))
    assert rate(made, 11) == pytest.approx(8.0)
    assert made.routers_seen() == (("fe", 2),)


@pytest.mark.parametrize("outcome", ["Failed", "Refused", "Answered"])
def test_a_router_that_is_not_read_scales_the_sum_and_marks_it_stale(outcome: Outcome) -> None:
    """The API page: a front-end's sum is known only if all its routers were read, else scaled and marked stale."""
    made = tracker(ONE, TWO)
    feed(made, page(ONE, 0, 0), page(TWO, 0, 0), page(ONE, 10, 50), page(TWO, 10, 50))
    for step in range(2, 12):
        feed(made, page(ONE, 10.0 * step, 50.0 * step), page(TWO, 10.0 * step, 0, outcome))
    assert rate(made, 110) == pytest.approx(10.0)
    view = only(made.views(110, LIMITS))
    assert view.state == "Held"


def test_no_router_read_holds_and_then_forgets() -> None:
    made = tracker(ONE)
    feed(made, page(ONE, 0, 0), page(ONE, 5, 50))
    for now, state in ((10, "Fresh"), (60, "Held"), (200, "Widened"), (300, "Unknown")):
        feed(made, page(ONE, now, 0, "Failed"))
        view = only(made.views(now, LIMITS))
        assert view.state == state
        assert (view.signal is not None) is (state in ("Fresh", "Held"))


def test_a_restarted_router_gives_no_negative_demand() -> None:
    """Case PRM-05: a counter reset is no reading. https://github.com/prometheus/prometheus/issues/9221"""
    made = tracker(ONE)
    feed(made, page(ONE, 0, 900), page(ONE, 10, 1000), page(ONE, 20, 3))
    assert rate(made, 20) == 10.0
    feed(made, page(ONE, 30, 103))
    assert rate(made, 30) == pytest.approx(10.0)


def test_a_process_that_lost_a_series_was_restarted() -> None:
    made = tracker(ONE)
    other = DemandKey("i/chat", "m2", "default")
    both = RouterCounts(offered={KEY: 5.0, other: 7.0})
    feed(made, TargetSample(ONE, 0, "Read", counts=both), page(ONE, 10, 50))
    assert made.views(10, LIMITS) == []


def test_a_new_series_started_at_zero() -> None:
    made = tracker(ONE)
    feed(made, TargetSample(ONE, 0, "Read", counts=RouterCounts()), page(ONE, 10, 200))
    assert rate(made, 10) == 20.0


def test_client_retries_raise_demand_only_while_nothing_is_shed() -> None:
    """The API page: else shedding makes clients retry, which makes demand, which sheds."""
    for shedding, expected in (((), 15.0), (("i/chat",), 10.0)):
        made = tracker(ONE)
        feed(made, page(ONE, 0, 0, client_retries=0), shedding=shedding)
        feed(made, page(ONE, 10, 100, client_retries=50), shedding=shedding)
        assert rate(made, 10) == expected


def test_tokens_are_means_of_ended_requests() -> None:
    made = tracker(ONE)
    feed(made, page(ONE, 0, 0, ended=0, input_tokens=0, output_tokens=0))
    feed(made, page(ONE, 10, 100, ended=40, input_tokens=40_000, output_tokens=8_000))
    signal = only(made.views(10, LIMITS)).signal
    assert signal is not None
    assert signal.input_tokens is not None
    assert signal.output_tokens is not None
    assert (signal.input_tokens.value, signal.output_tokens.value) == (1000.0, 200.0)


def test_tokens_of_too_few_requests_are_unknown() -> None:
    made = tracker(ONE)
    feed(made, page(ONE, 0, 0, ended=0, input_tokens=0), page(ONE, 10, 100, ended=1, input_tokens=9))
    signal = only(made.views(10, LIMITS)).signal
    assert signal is not None
    assert signal.input_tokens is None


def test_priorities() -> None:
    low = DemandKey("i/chat", "m", "batch")
    made = tracker(ONE)
    for at, high_count, low_count in ((0, 0.0, 0.0), (10, 75.0, 25.0)):
        counts = RouterCounts(offered={KEY: high_count, low: low_count})
        feed(made, TargetSample(ONE, at, "Read", counts=counts))
    signal = only(made.views(10, LIMITS)).signal
    assert signal is not None
    assert signal.priorities == (Share(name="batch", share=0.25), Share(name="default", share=0.75))


def test_repeated_samples_count_once() -> None:
    made = tracker(ONE)
    feed(made, page(ONE, 0, 0), page(ONE, 10, 50), page(ONE, 10, 50), page(ONE, 9, 10))
    assert rate(made, 10) == 5.0


def test_strangers_are_ignored() -> None:
    made = tracker(ONE)
    feed(made, page(RouterTarget("other", "http://x"), 0, 5), page(RouterTarget("fe", "http://x"), 0, 5))
    assert made.ejected() is None
    made.retarget([])
    assert made.routers_seen() == ()


def test_ejected_endpoints_are_a_second_source() -> None:
    made = tracker(ONE)
    feed(made, TargetSample(ONE, 0, "Read", counts=RouterCounts(ejected={"i/a": 1.0, "i/b": 0.0})))
    assert made.ejected() == {"i/a": True}


def sent_page(target: RouterTarget, at: float, count: float) -> TargetSample:
    return TargetSample(target, at, "Read", counts=RouterCounts(sent={"inf/a": count}))


def test_requests_sent_to_engines_are_known_only_when_all_routers_are() -> None:
    made = tracker(ONE, TWO)
    for at in range(0, 80, 2):
        feed(made, sent_page(ONE, at, 10.0 * at), sent_page(TWO, at, 5.0 * at))
    known = made.sent_rates({"fe"}, 80)
    assert known is not None
    assert known["inf/a"] == pytest.approx(15.0)
    assert made.sent_rates({"fe", "elsewhere"}, 80) is None
    assert made.sent_rates({"fe"}, 400) is None
    made.retarget([ONE, TWO, RouterTarget("fe", "http://r3")])
    assert made.sent_rates({"fe"}, 80) is None
