"""Refusals in the client API's own form."""

import json

import pytest

from headrace_router.proxy.refusals import Refusal, cut_event


@pytest.mark.parametrize(("seconds", "said"), [(0.0, b"1"), (0.4, b"1"), (16.2, b"17"), (2.0, b"2")])
def test_retry_after_is_whole_and_at_least_one(seconds: float, said: bytes) -> None:
    """SCA-04 (https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/1082)."""
    assert b"Retry-After: %b\r\n" % said in Refusal(429, "saturated", "x", retry_after=seconds).lines()


def test_forms_of_both_apis() -> None:
    refusal = Refusal(429, "saturated", "full", retry_after=1, final=True)
    assert json.loads(refusal.body(anthropic=False)) == {
        "error": {"message": "full", "type": "rate_limit_error", "param": None, "code": "saturated"}
    }
    assert json.loads(refusal.body(anthropic=True)) == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "full", "code": "saturated"},
    }
    assert b"x-should-retry: false\r\n" in refusal.lines()
    assert refusal.phrase == b"Too Many Requests"
    assert json.loads(Refusal(503, "no_engine", "x").body(anthropic=True))["error"]["type"] == "overloaded_error"
    assert json.loads(Refusal(502, "e", "x").body(anthropic=False))["error"]["type"] == "server_error"


def test_nothing_in_a_message_can_end_an_event_or_a_header() -> None:
    event = cut_event("engine_cut", "a\n\ndata: [DONE]\n\n", anthropic=False)
    assert event.startswith(b"\n\ndata: {")
    assert event.count(b"\n\n") == 2
    assert b"event: error\ndata: " in cut_event("c", "m", anthropic=True)
