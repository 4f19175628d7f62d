"""What must hold of estimators for any samples, in any order."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_operator.estimators.counters import Increase, Sample, increase
from headrace_operator.estimators.demand import DemandEstimate, observe
from headrace_operator.estimators.liveness import Liveness
from headrace_operator.estimators.penalty import Penalty, PenaltyRules, Verdict, advance
from headrace_operator.estimators.replica import PageReading, ReplicaWindow, combine
from headrace_operator.estimators.staleness import ladder, thresholds

wild = st.floats(allow_nan=True, allow_infinity=True)
sane = st.floats(min_value=0, max_value=1e9)
times = st.floats(min_value=0, max_value=1e6)


@settings(deadline=None)
@given(wild, wild, wild, wild)
def test_a_rate_is_never_negative_and_always_finite(at: float, value: float, then: float, more: float) -> None:
    found = increase(Sample(at, value), Sample(then, more))
    assert found is None or (found.amount >= 0 and found.seconds > 0 and math.isfinite(found.amount))


@settings(deadline=None)
@given(st.lists(st.tuples(times, wild, st.floats(min_value=0.1, max_value=60)), max_size=40))
def test_demand_stays_within_what_was_read(readings: list[tuple[float, float, float]]) -> None:
    estimate: DemandEstimate | None = None
    taken: list[float] = []
    for at, rate, seconds in readings:
        before = estimate
        estimate = observe(estimate, at, Increase(rate * seconds, seconds))
        if estimate is not before:
            taken.append(rate * seconds / seconds)
    if estimate is not None:
        slack = 1e-6 * (1 + max(taken))
        assert min(taken) - slack <= estimate.level <= max(taken) + slack
        assert math.isfinite(estimate.deviation)


@settings(deadline=None)
@given(st.lists(st.tuples(times, sane), min_size=1, max_size=30))
def test_late_and_repeated_samples_change_nothing(samples: list[tuple[float, float]]) -> None:
    """Reordered delivery: what is not newer is as if it had never come."""
    everything, newest_only, newest = ReplicaWindow(60.0), ReplicaWindow(60.0), -math.inf
    for at, value in samples:
        everything.observe(PageReading(at, {"finished": value}))
        if at > newest:
            newest_only.observe(PageReading(at, {"finished": value}))
            newest = at
    assert combine([everything]) == combine([newest_only])


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["finished", "ttft_sum", "ttft_count", "running"]), wild), max_size=20))
def test_figures_are_finite_and_not_negative(pages: list[dict[str, float]]) -> None:
    window = ReplicaWindow(10.0)
    for at, values in enumerate(pages):
        window.observe(PageReading(float(at), values))  # type: ignore[arg-type]
    seen = combine([window])
    for value in (seen.ttft, seen.running, seen.request_rate, seen.hit_share):
        assert value is None or value >= 0


@settings(deadline=None)
@given(st.permutations([0.2, 0.4, 0.6]))
def test_the_order_of_replicas_does_not_matter(usages: list[float]) -> None:
    windows = []
    for usage in usages:
        window = ReplicaWindow(10.0)
        window.observe(PageReading(0.0, {"kv_usage": usage, "running": 10 * usage}))
        windows.append(window)
    seen = combine(windows)
    assert math.isclose(seen.kv_usage or 0.0, 0.4)
    assert math.isclose(seen.running or 0.0, 12.0)


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=1e5), st.floats(min_value=0, max_value=1e5), sane, sane, sane)
def test_older_signals_never_count_for_more(age: float, more: float, hold: float, degrade: float, gap: float) -> None:
    limits = thresholds(hold, degrade, gap)
    assert ladder(age + more, limits).factor <= ladder(age, limits).factor
    assert 0 < ladder(age, limits).factor <= 1


@settings(deadline=None)
@given(st.lists(st.sampled_from(["Read", "Answered", "Refused", "Failed"]), max_size=30), st.integers(1, 5))
def test_only_refusals_kill(outcomes: list[str], limit: int) -> None:
    state = Liveness()
    for at, outcome in enumerate(outcomes):
        state = state.observe(float(at), outcome, limit)  # type: ignore[arg-type]
    if state.up is False:
        assert outcomes.count("Refused") >= limit
    if outcomes and outcomes[-1] == "Read":
        assert state.up is True


verdicts = st.sampled_from(
    [Verdict("Bad", 0.3, "slow"), Verdict("Bad", 0.05, "slower"), Verdict("Good"), Verdict("Unclear")]
)


@settings(deadline=None)
@given(st.lists(st.tuples(times, verdicts, st.booleans()), max_size=60))
def test_a_penalty_is_a_factor_with_a_reason(samples: list[tuple[float, Verdict, bool]]) -> None:
    state = Penalty()
    for at, verdict, allowed in samples:
        state = advance(state, at, verdict, PenaltyRules(after=5, recover_after=5, recover_step=2), allowed=allowed)
        assert 0.05 <= state.factor <= 1
        assert state.factor == 1 or state.reason
