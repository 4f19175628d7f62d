"""What counts as lost needlessly (protection's rule), and how streams and figures are read."""

from __future__ import annotations

import pytest

from headrace_lab.replay.events import MAX_EVENT_BYTES, EventReader, error_of
from headrace_lab.replay.outcome import NEEDLESS, Answer, Outcome, Result, classify, unborne
from headrace_lab.replay.summary import count, end_to_end_of, figures, quantile, ttft_of


@pytest.mark.parametrize(
    ("answer", "result", "needless"),
    [
        pytest.param(Answer(200, True, True), Result.DONE, False, id="done"),
        pytest.param(Answer(200, True, False), Result.CUT, False, id="cut-after-its-first-byte"),
        pytest.param(Answer(200, True, False, timed_out=True), Result.CUT, False, id="stalled-after-its-first-byte"),
        pytest.param(Answer(200, False, False), Result.FAILED, True, id="head-but-no-body"),
        pytest.param(Answer(0, False, False), Result.UNREACHABLE, True, id="no-router"),
        pytest.param(Answer(0, False, False, timed_out=True), Result.TIMED_OUT, True, id="no-answer-in-time"),
        pytest.param(Answer(200, False, False, timed_out=True), Result.TIMED_OUT, True, id="no-body-in-time"),
        pytest.param(Answer(429, False, False, "shed"), Result.SHED, False, id="shed-by-the-table"),
        pytest.param(Answer(429, False, False, "saturated"), Result.SHED, False, id="queue-full"),
        pytest.param(Answer(429, False, False), Result.FAILED, True, id="an-engine-was-full-and-nobody-tried-another"),
        pytest.param(Answer(500, False, False), Result.FAILED, True, id="an-engine-failed-and-it-was-passed-on"),
        pytest.param(Answer(400, False, False, "bad_request"), Result.REJECTED, False, id="client-error"),
        pytest.param(Answer(503, False, False, "no_table"), Result.FAILED, True, id="no-table"),
        pytest.param(Answer(503, False, False, "no_engine"), Result.EXHAUSTED, False, id="no-engine-at-all"),
        pytest.param(Answer(502, False, False, "engine_failed", attempts=1), Result.EXHAUSTED, False, id="budget"),
        pytest.param(Answer(502, False, False, "engine_unreachable", attempts=3), Result.EXHAUSTED, False, id="picks"),
        pytest.param(
            Answer(502, False, False, "engine_unreachable", attempts=1), Result.FAILED, True, id="a-pick-left"
        ),
        pytest.param(Answer(502, False, False, "engine_unreachable"), Result.FAILED, True, id="attempts-unknown"),
    ],
)
def test_classification(answer: Answer, result: Result, needless: bool) -> None:
    assert classify(answer) is result
    assert (result in NEEDLESS) is needless


def outcome(result: Result, **fields: object) -> Outcome:
    base = {"at": 0.0, "frontend": "a", "priority": "batch", "session": "1", "late": 0.0, "result": result}
    return Outcome(**{**base, **fields})  # type: ignore[arg-type]


def test_a_claimed_empty_budget_must_be_borne_out_by_refused_retries() -> None:
    claim = outcome(Result.EXHAUSTED, code="engine_failed", attempts=1)
    tried_all = outcome(Result.EXHAUSTED, code="engine_failed", attempts=3)
    assert unborne([claim, claim, tried_all], 3, refused_retries=2) == 0
    assert unborne([claim, claim, tried_all], 3, refused_retries=0) == 2
    assert unborne([], 3, refused_retries=7) == 0


CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'


def test_content_is_the_first_event_with_text_not_the_role_nor_a_comment() -> None:
    reader = EventReader()
    reader.feed(b": keep-alive\n\n" + ROLE)
    assert not reader.content
    reader.feed(CONTENT)
    assert reader.content
    assert not reader.done
    reader.feed(b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\ndata: [DONE]\n\n')
    assert reader.done
    assert reader.error == ""


def test_events_may_be_cut_anywhere() -> None:
    stream = ROLE + CONTENT + b"data: [DONE]\n\n"
    for size in (1, 2, 3, 7, 64):
        reader = EventReader()
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
        assert (reader.content, reader.done, reader.error) == (True, True, "")


@pytest.mark.parametrize(
    ("event", "word"),
    [
        pytest.param(b'data: {"error":{"message":"engine gone","code":"cut"}}\n\n', "engine gone", id="error-event"),
        pytest.param(b'data: {"error":{"code":502}}\n\n', "502", id="error-without-message"),
        pytest.param(b'data: {"choices": [{"delta"\n\n', "unreadable", id="half-written"),
        pytest.param(b"data: " + b"x" * (MAX_EVENT_BYTES + 1), "4 MiB", id="endless-event"),
    ],
)
def test_an_event_that_is_no_answer_is_an_error(event: bytes, word: str) -> None:
    reader = EventReader()
    reader.feed(event)
    assert word in reader.error
    assert not reader.content


def test_completions_count_as_content_too() -> None:
    reader = EventReader()
    reader.feed(b'data: {"choices":[{"text":"Hel"}]}\n\n')
    assert reader.content


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b'{"error":{"message":"full","code":"saturated"}}', ("saturated", "full"), id="openai-form"),
        pytest.param(b'{"error":{"message":"full","code":null}}', ("", "full"), id="no-code"),
        pytest.param(b"<html>", ("", ""), id="no-json"),
        pytest.param(b'{"detail":"x"}', ("", ""), id="another-form"),
        pytest.param(b'{"error":"text"}', ("", ""), id="error-as-text"),
    ],
)
def test_error_bodies(body: bytes, expected: tuple[str, str]) -> None:
    assert error_of(body) == expected


def test_quantiles_are_nearest_rank() -> None:
    values = [float(k) for k in range(1, 101)]
    assert [quantile(values, q) for q in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert quantile([7.0], 0.5) == 7
    assert quantile([], 0.5) is None
    assert figures([]).p99 is None


def test_counts_and_percentiles_take_the_right_requests() -> None:
    outcomes = [
        outcome(Result.DONE, ttft=0.1, duration=1.0),
        outcome(Result.DONE, ttft=0.3, duration=2.0),
        outcome(Result.CUT, ttft=0.2, duration=0.5),
        outcome(Result.SHED, duration=0.01),
        outcome(Result.FAILED, duration=9.0),
        outcome(Result.NOT_SENT),
    ]
    counts = count(outcomes)
    assert (counts.requests, counts.done, counts.failed, counts.cut) == (6, 2, 2, 1)
    assert (counts.shed, counts.lost_needlessly, counts.not_sent) == (1, 1, 1)
    assert ttft_of(outcomes).p50 == 0.2
    assert end_to_end_of(outcomes).p99 == 2.0
