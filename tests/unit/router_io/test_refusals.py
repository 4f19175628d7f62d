"""Refusals in the client API's own form."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from http import HTTPStatus

import pytest

import headrace_router
from headrace_router.core import facts
from headrace_router.http1.request_head import BadHead, parse_request_head
from headrace_router.proxy import refusals
from headrace_router.proxy.refusals import Refusal, cut_event
from support.hostile_http import HEADS


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


OF_ITS_OWN = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 503: "overloaded_error"}


def defined() -> Iterator[Refusal]:
    """Every refusal that stands in a module of the router, and one of each that is made for its request."""
    for found in pkgutil.walk_packages(headrace_router.__path__, "headrace_router."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            yield from (each for each in vars(module).values() if isinstance(each, Refusal))
    yield from (refusals.body_stopped(1.0), refusals.body_too_slow(0.5, 500))
    yield from (refusals.over_limits(9, 8, 7), refusals.over_limits(8, 8, 7))
    for kind in facts.RefusalKind:
        yield refusals.not_picked(facts.Refusal(kind, "x"))
    for hostile in HEADS:
        bad = parse_request_head(hostile.raw[: hostile.raw.find(b"\r\n\r\n") + 4])
        if isinstance(bad, BadHead):
            yield refusals.of_bad_head(bad)


def kinds(refusal: Refusal) -> tuple[str, str]:
    """The error's type in OpenAI's form and in Anthropic's."""
    openai, anthropic = (json.loads(refusal.body(anthropic=form))["error"]["type"] for form in (False, True))
    return openai, anthropic


def right(status: int) -> tuple[str, str]:
    """429 apart, a 4xx is the client's fault and a 5xx the server's; Anthropic has names for some."""
    if status == 429:
        return "rate_limit_error", "rate_limit_error"
    openai, anthropic = ("invalid_request_error",) * 2 if status < 500 else ("server_error", "api_error")
    return openai, OF_ITS_OWN.get(status, anthropic)


def test_the_type_of_every_refusal_says_whose_fault_it_is() -> None:
    found = list(defined())
    assert {each.status for each in found} >= {400, 401, 408, 414, 415, 417, 429, 431, 500, 501, 503, 505, 508}
    assert {(each.code, kinds(each)) for each in found} == {(each.code, right(each.status)) for each in found}


@pytest.mark.parametrize("status", [each.value for each in HTTPStatus if each >= 400])
def test_so_it_does_for_any_other_status(status: int) -> None:
    assert kinds(Refusal(status, "x", "x")) == right(status)
