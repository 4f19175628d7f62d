"""The load for clusters: what is planned, what options are refused, what its result says."""

from __future__ import annotations

import pytest

from headrace_api.commands import InputError
from headrace_lab.load.__main__ import _parser, read
from headrace_lab.load.plan import Steady, build
from headrace_lab.load.result import result_of
from headrace_lab.replay.client import headers_of
from headrace_lab.replay.outcome import Outcome, Result
from headrace_lab.workload.requests import Request


def planned(**fields: object) -> list[Request]:
    known = {"rates": {"a": 20.0, "b": 5.0}, "duration": 100.0}
    return list(build(Steady(**{**known, **fields})))  # type: ignore[arg-type]


def test_requests_come_at_their_rates_in_order_and_the_same_each_time() -> None:
    requests = planned()
    assert requests == planned()
    assert requests != planned(seed=1)
    assert [request.at for request in requests] == sorted(request.at for request in requests)
    by_frontend = [sum(request.frontend == name for request in requests) for name in "ab"]
    assert by_frontend[0] == pytest.approx(2000, abs=4 * 2000**0.5)
    assert by_frontend[1] == pytest.approx(500, abs=4 * 500**0.5)


def test_even_arrivals_and_a_bound_by_number() -> None:
    requests = planned(even=True, requests=100)
    assert [request.at for request in requests if request.frontend == "a"] == pytest.approx(
        [number / 20 for number in range(1, 101)]
    )


def test_keyless_requests_name_no_conversation_and_share_no_prompt() -> None:
    requests = planned(requests=200)
    assert {request.session for request in requests} == {""}
    assert "x-session-id" not in headers_of(requests[0])
    blocks = [block for request in requests for block in request.blocks]
    assert len(set(blocks)) == len(blocks) == 2 * len(requests)


def test_conversations_keep_their_prompt() -> None:
    requests = planned(requests=200, sessions=10)
    assert len({request.session for request in requests}) == 20
    assert len({(request.session, request.blocks) for request in requests}) == 20
    assert headers_of(requests[0])["x-session-id"] == requests[0].session


GOOD = ["--to", "a=http://a:1", "--to", "b=http://b:1", "--rate", "5", "--model", "m"]


def test_a_rate_for_all_and_one_for_one() -> None:
    urls, load = read(_parser().parse_args([*GOOD, "--rate", "b=7", "--requests", "9"]))
    assert urls == {"a": "http://a:1", "b": "http://b:1"}
    assert (load.rates, load.requests) == ({"a": 5.0, "b": 7.0}, 9)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--to", "http://a:1"], "--to http://a:1"),
        (["--rate", "c=5"], "--rate c=5"),
        (["--rate", "nan"], "--rate nan"),
        (["--rate", "0"], "--rate 0"),
        (["--duration", "inf"], "--duration inf"),
        (["--requests", "0"], "--requests 0"),
        (["--output-tokens", "-1"], "--output-tokens -1"),
        (["--sessions", "-1"], "--sessions -1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_means_nothing_is_refused_by_name(options: list[str], named: str) -> None:
    with pytest.raises(InputError) as refused:
        read(_parser().parse_args([*GOOD, *options]))
    assert any(fault.startswith(named) for fault in refused.value.faults)


def outcome(result: Result, engine: str, revision: int, frontend: str = "a") -> Outcome:
    return Outcome(1.0, frontend, "interactive", "", 0.0, result, 200, 0.1, 0.5, engine, "", revision)


def test_a_result_counts_by_engine_and_revision() -> None:
    outcomes = [outcome(Result.DONE, "n/x", 1), outcome(Result.DONE, "n/y", 2), outcome(Result.CUT, "n/x", 2)]
    result = result_of(outcomes, ["a", "b"], 2.0)
    assert result.frontends["a"].engines == {"n/x": 2, "n/y": 1}
    assert result.frontends["a"].revisions == {"1": {"n/x": 1}, "2": {"n/y": 1, "n/x": 1}}
    assert result.frontends["b"].counts.requests == 0
    assert result.frontends["b"].ttft.p50 is None
    assert (result.counts.done, result.counts.cut, result.counts.failed) == (2, 1, 1)
    assert result.failures == ["1.0 s, a -> n/x: cut, 200"]
