"""What one request leaves in the metrics, whichever way it goes."""

from __future__ import annotations

import pytest

from headrace_router.core.build_view import build_view
from headrace_router.core.facts import RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.telemetry import accounting
from headrace_router.telemetry.accounting import Account, Ledger
from headrace_router.telemetry.metrics import Metrics
from headrace_router.telemetry.sse import StreamObserver
from headrace_router.telemetry.unary import UnaryObserver
from support.router_core import make_table

MODEL = ("ns", "chat", "fe", "m")
DEMAND = (*MODEL, "default", "0")
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


class Counting:
    """A ledger over one table, and a clock that stands still unless told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        self.ledger = Ledger(self.metrics)
        self.selector = Selector(build_view([make_table({"a": 10_000})]), rng=lambda: 0.5)
        self.ledger.prepare(self.selector.view)
        monkeypatch.setattr(accounting, "monotonic", lambda: self.now)

    def account(self, *, client_retry: bool = False) -> Account:
        return Account(self.ledger, self.selector.view.models["m"], "default", 400, client_retry, self.now)

    def pick(self) -> Pick:
        picked = self.selector.pick(RequestFacts("m", body_bytes=400), 0.0)
        assert isinstance(picked, Pick)
        return picked

    def values(self, *names: str) -> list[float]:
        return [getattr(self.metrics, name)[DEMAND].value for name in names]

    def demand(self) -> list[float]:
        return self.values("offered", "client_retries", "ended", "input_tokens", "output_tokens")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def unary(body: bytes) -> UnaryObserver:
    observer = UnaryObserver()
    observer.feed(body)
    return observer


def test_a_unary_answer(counting: Counting) -> None:
    account, pick = counting.account(), counting.pick()
    counting.now += 0.5
    account.sending(pick)
    counting.now += 1.5
    account.answered(pick, unary(b'{"usage":{"prompt_tokens":50,"completion_tokens":7}}'))
    account.attempted(pick, accounting.OK)
    account.close()
    metrics, engine = counting.metrics, (pick.engine,)
    assert counting.demand() == [1, 0, 1, 50, 7]
    assert metrics.requests[(*MODEL, pick.engine, "ok")].value == 1
    assert metrics.picks[(*MODEL[:3], pick.reason)].value == 1
    assert metrics.duration[(*DEMAND, "unary")].total == 2.0
    assert (metrics.engine_duration[engine].count, metrics.engine_duration[engine].total) == (1, 1.5)
    assert (metrics.engine_input_tokens[engine].value, metrics.engine_output_tokens[engine].value) == (50, 7)
    assert (metrics.usage_bytes[MODEL].value, metrics.usage_tokens[MODEL].value) == (400, 50)
    assert DEMAND not in metrics.ttft.known()
    assert (*DEMAND, "stream") not in metrics.duration.known()


def streamed(counting: Counting, *, usage: bytes = b"", events: int = 5) -> None:
    account, pick, observer = counting.account(), counting.pick(), StreamObserver()
    account.sending(pick)
    counting.now += 0.3
    observer.feed(EVENT)
    account.first_token(pick)
    counting.now += 2.0
    for _ in range(events - 1):
        observer.feed(EVENT)
    observer.feed(usage)
    observer.end()
    account.answered(pick, observer)
    account.attempted(pick, accounting.OK)
    account.close()


def test_a_stream_with_usage(counting: Counting) -> None:
    streamed(counting, usage=b'data: {"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":9}}\n\n')
    metrics = counting.metrics
    assert counting.demand() == [1, 0, 1, 50, 9]
    assert metrics.ttft[DEMAND].total == pytest.approx(0.3)
    assert metrics.duration[(*DEMAND, "stream")].total == pytest.approx(2.3)
    assert metrics.tbot[DEMAND].total == pytest.approx(2.0 / 8)
    assert sum(metrics.tbot[DEMAND].counts) == 1
    ((engine,),) = metrics.engine_tbot.known()
    assert (metrics.engine_tbot[(engine,)].count, metrics.engine_tbot[(engine,)].total) == (8, pytest.approx(2.0))


def test_a_stream_without_usage_is_counted_by_its_events(counting: Counting) -> None:
    streamed(counting, events=5)
    assert counting.demand() == [1, 0, 1, 100, 5]
    assert counting.metrics.tbot[DEMAND].total == pytest.approx(2.0 / 4)


def test_one_token_has_no_time_between_tokens(counting: Counting) -> None:
    streamed(counting, events=1)
    assert counting.metrics.tbot.known() == []


def test_a_stream_that_breaks_off_counts_what_came(counting: Counting) -> None:
    account, pick, observer = counting.account(), counting.pick(), StreamObserver()
    account.sending(pick)
    observer.feed(EVENT * 3)
    account.first_token(pick)
    account.broken_off(observer)
    account.attempted(pick, accounting.CUT)
    account.close()
    assert counting.demand() == [1, 0, 1, 100, 3]
    assert counting.metrics.engine_output_tokens[(pick.engine,)].value == 3
    assert counting.metrics.requests[(*MODEL, pick.engine, "cut")].value == 1
    assert counting.metrics.duration.known() == []


def test_a_clients_retry_is_no_demand_and_still_work(counting: Counting) -> None:
    account, pick = counting.account(client_retry=True), counting.pick()
    account.sending(pick)
    account.answered(pick, unary(b'{"usage":{"prompt_tokens":50,"completion_tokens":7}}'))
    account.close()
    assert counting.demand() == [0, 1, 0, 0, 0]
    assert counting.metrics.engine_output_tokens[(pick.engine,)].value == 7
    assert counting.metrics.prompt_tokens[MODEL].total == 0


def test_what_touched_no_engine_has_no_latency_and_the_mean_of_its_kind(counting: Counting) -> None:
    """SCA-04 (https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/1082)."""
    counting.account().close()
    assert counting.demand() == [1, 0, 0, 0, 0], "no mean is known yet"
    streamed(counting, usage=b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":8}}\n\n')
    shed = counting.account()
    shed.shed("shed")
    shed.close()
    shed.close()
    assert counting.demand() == [3, 0, 2, 200, 16]
    assert counting.metrics.shed[(*MODEL, "default", "shed")].value == 1
    assert sum(counting.metrics.duration[(*DEMAND, "stream")].counts) == 1
    assert counting.metrics.engine_output_tokens[("ns/a",)].value == 8


def test_attempts_are_counted_by_engine_and_outcome(counting: Counting) -> None:
    account, pick = counting.account(), counting.pick()
    for outcome, kind in ((accounting.UNREACHED, "repick"), (accounting.FULL, "retry")):
        account.sending(pick)
        account.attempted(pick, outcome)
        account.again(kind)
    assert (account.attempts, account.engine, account.outcome) == (2, pick.engine, "full")
    counts = {values[-1]: counting.metrics.requests[values].value for values in counting.metrics.requests.known()}
    assert counts == {"unreached": 1, "full": 1}
    assert counting.metrics.retries[(*MODEL[:3], "repick")].value == 1


def test_a_swap_of_tables_goes_on_with_the_same_counts(counting: Counting) -> None:
    """Children are looked up once a table; a request that began under the last one ends in the same series."""
    before = counting.account()
    view = build_view([make_table({"a": 10_000})], counting.selector.view)
    counting.selector.install(view)
    counting.ledger.prepare(view)
    after, pick = counting.account(), counting.pick()
    for account in (before, after):
        account.sending(pick)
        account.answered(pick, unary(b'{"usage":{"prompt_tokens":5,"completion_tokens":1}}'))
        account.attempted(pick, accounting.OK)
    assert counting.demand() == [2, 0, 2, 10, 2]
    assert counting.metrics.requests[(*MODEL, pick.engine, "ok")].value == 2


def test_a_view_that_nothing_was_prepared_for_is_counted_too(counting: Counting) -> None:
    other = build_view([make_table({"a": 10_000})]).models["m"]
    Account(counting.ledger, other, "default", 400, False, 0.0)
    counting.account()
    assert counting.values("offered") == [2]
