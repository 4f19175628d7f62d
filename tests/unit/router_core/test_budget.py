"""The retry budget and the decision to retry."""

from __future__ import annotations

import random

import pytest

from headrace_router.core.budget import WINDOW_S, RetryBudget
from headrace_router.core.retry import Retry, decide_retry, read_retry_after
from headrace_router.core.view import PolicyView
from support.router_core import engine, held, make_selector, make_table


def admitted(budget: RetryBudget, requests: int, failures: int, now: float = 100.0, shedding: bool = False) -> int:
    for _ in range(requests):
        budget.deposit(now)
    return sum(budget.withdraw(now, shedding) for _ in range(failures))


def test_a_share_of_the_requests_and_no_more() -> None:
    """RET-02 a: 10 in flight, all fail at once, 20 %: 2 retries. https://github.com/envoyproxy/envoy/issues/30205"""
    assert admitted(RetryBudget(20.0, 0.0), 10, 10) == 2


def test_the_floor_is_added_to_the_share() -> None:
    """RET-02 a with a floor of 3: the case takes the larger (3), our page adds the floor to the share (5)."""
    assert admitted(RetryBudget(20.0, 3.0), 10, 10) == 5


def test_the_order_of_failures_changes_nothing() -> None:
    """RET-02: failures handled between arrivals, or after all of them, admit the same number once all arrived."""
    late = RetryBudget(20.0, 0.0)
    assert admitted(late, 10, 10) == 2
    mixed = RetryBudget(20.0, 0.0)
    verbs = ["deposit"] * 10 + ["withdraw"] * 10
    random.Random(3).shuffle(verbs)
    taken = 0
    for verb in verbs:
        if verb == "deposit":
            mixed.deposit(100.0)
        else:
            taken += mixed.withdraw(100.0)
    taken += sum(mixed.withdraw(100.0) for _ in range(10))
    assert taken == 2


def test_the_only_request_may_be_retried_at_a_full_budget() -> None:
    """RET-02 b. https://github.com/envoyproxy/envoy-mobile/pull/811"""
    assert admitted(RetryBudget(100.0, 0.0), 1, 1) == 1


def test_sleeping_retries_hold_their_places() -> None:
    """RET-02 c: ten more fail during the backoff of the first; 20 requests at 20 % give 4 in all.

    https://github.com/envoyproxy/envoy/pull/9069
    """
    budget = RetryBudget(20.0, 0.0)
    assert admitted(budget, 10, 10, now=100.0) == 2
    assert admitted(budget, 10, 10, now=100.2) == 2


def test_the_window_slides() -> None:
    budget = RetryBudget(20.0, 0.0)
    assert admitted(budget, 10, 10, now=100.0) == 2
    assert not budget.withdraw(100.0 + WINDOW_S - 1.5)
    assert admitted(budget, 5, 5, now=100.0 + WINDOW_S + 1.0) == 1
    assert admitted(budget, 5, 5, now=1e6) == 1


def test_time_that_goes_backwards_changes_nothing() -> None:
    budget = RetryBudget(50.0, 0.0)
    assert admitted(budget, 4, 1, now=100.0) == 1
    assert budget.withdraw(90.0)
    assert not budget.withdraw(90.0)


def test_the_floor_is_per_second() -> None:
    budget = RetryBudget(0.0, 3.0)
    assert [budget.withdraw(0.0) for _ in range(4)] == [True, True, True, False]
    assert not budget.withdraw(0.3)
    assert budget.withdraw(0.7)


def test_a_floor_below_one_still_gives_one_now_and_then() -> None:
    budget = RetryBudget(0.0, 0.25)
    assert budget.withdraw(0.0)
    assert not budget.withdraw(3.9)
    assert budget.withdraw(4.1)


def test_while_anything_is_shed_the_floor_is_nil() -> None:
    assert admitted(RetryBudget(20.0, 3.0), 10, 10, shedding=True) == 2
    assert admitted(RetryBudget(0.0, 3.0), 1, 3, shedding=True) == 0


def test_what_is_left_can_be_seen() -> None:
    budget = RetryBudget(20.0, 3.0)
    for _ in range(10):
        budget.deposit(0.0)
    assert budget.left(0.0) == pytest.approx(5.0)
    assert budget.left(0.0, shedding=True) == pytest.approx(2.0)
    budget.withdraw(0.0)
    assert budget.left(0.0, shedding=True) == pytest.approx(1.0)
    budget.configure(0.0, 0.0)
    assert budget.left(0.0) == 0.0
    assert not budget.withdraw(0.0)


def policy(**retry: float) -> PolicyView:
    view = PolicyView(
        make_table(retry={"maxAttempts": 3, "percent": 0.0, "minPerSecond": 2.0} | retry, routers=2), None
    )
    view.configure()
    return view


def decide(view: PolicyView, attempts: int = 1, *, repick: bool = False, replayable: bool = True) -> Retry:
    return decide_retry(attempts, view, repick=repick, replayable=replayable, now=0.0)


def test_re_picks_draw_on_nothing_but_attempts() -> None:
    view = policy(minPerSecond=0.0)
    assert [decide(view, attempts, repick=True) for attempts in (1, 2, 3)] == [Retry.REPICK, Retry.REPICK, Retry.NO]


def test_retries_draw_on_this_processes_part_of_the_floor() -> None:
    view = policy()
    assert [decide(view), decide(view)] == [Retry.RETRY, Retry.NO]


def test_what_can_not_be_replayed_is_not_retried() -> None:
    view = policy()
    assert decide(view, replayable=False) is Retry.NO
    assert decide(view, attempts=3) is Retry.NO
    assert decide(view) is Retry.RETRY  # nothing was taken by the refusals


def test_while_the_policy_sheds_the_floor_is_nil() -> None:
    assert decide_retry(1, policy(), repick=False, replayable=True, now=0.0, shedding=True) is Retry.NO


def test_a_swap_keeps_what_was_spent() -> None:
    view = policy()
    assert decide(view) is Retry.RETRY
    after = PolicyView(view.table, view)
    after.configure()
    assert decide(after) is Retry.NO


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 1.0),
        (" 30 ", 30.0),
        ("0", 0.0),
        ("99999999", 99_999_999.0),
        ("9" * 400, 1e12),
        ("Wed, 01 Jan 2031 00:00:00 GMT", 1_924_992_000.0 - 1_900_000_000.0),
        ("Wed, 01 Jan 2031 01:00:00 +0100", 1_924_992_000.0 - 1_900_000_000.0),
        ("Wed, 01 Jan 2020 00:00:00 GMT", 0.0),
        (None, None),
        ("", None),
        ("-5", None),
        ("abc", None),
        ("1.5", None),
        ("٣", None),
        ("nan", None),
        ("Wed, 99 Foo 2031 99:99:99 GMT", None),
        ("01 Jan 2031", None),
        ("Wed, 01 Jan 999999999999 00:00:00 GMT", None),
        ("Wed, 31 Feb 20311 00:00:00 GMT", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    """RET-05: seconds or a date; 0 is 0, negative and garbage are ignored. https://github.com/BerriAI/litellm/issues/40130"""
    assert read_retry_after(text, 1_900_000_000.0) == seconds


@pytest.mark.parametrize(
    ("slack", "retries"),
    [pytest.param(1.0, 20, id="idle"), pytest.param(0.5, 11, id="half"), pytest.param(0.0, 2, id="full")],
)
def test_the_share_tightens_as_engines_fill(slack: float, retries: int) -> None:
    """protection.md, Retries: the router tightens the published share on its own view, down to the saturated one."""
    budget = RetryBudget()
    budget.configure(20.0, 0.0, 2.0)
    for _ in range(100):
        budget.deposit(100.0)
    assert budget.left(100.0, slack=slack) == pytest.approx(retries)
    assert sum(budget.withdraw(100.0, slack=slack) for _ in range(100)) == retries


def test_a_table_without_a_saturated_share_is_not_tightened() -> None:
    """Tables of the release before name none."""
    budget = RetryBudget()
    budget.configure(20.0, 0.0)
    for _ in range(10):
        budget.deposit(100.0)
    assert budget.left(100.0, slack=0.0) == 2.0


def test_the_slack_that_a_process_sees_is_of_its_own_limits() -> None:
    engines = [engine("a", concurrencyLimit=2), engine("b", concurrencyLimit=2)]
    selector = make_selector(make_table({"a": 5000, "b": 5000}, engines=engines))
    policy = selector.view.policies[0]
    assert policy.slack() == 1.0
    pick = held(selector)
    assert policy.slack() == 0.75
    pick.release()
    assert policy.slack() == 1.0


def test_without_limits_no_fullness_is_seen() -> None:
    engines = [engine("a", concurrencyLimit=2), engine("b")]
    selector = make_selector(make_table({"a": 5000, "b": 5000}, engines=engines))
    held(selector)
    assert selector.view.policies[0].slack() == 1.0
