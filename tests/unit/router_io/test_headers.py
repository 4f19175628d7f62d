"""Header rules of both directions."""

import pytest

from headrace_router.http1 import headers


def test_hop_by_hop_and_what_connection_names_end_here() -> None:
    """PRO-04 (https://github.com/golang/go/issues/16875): the fixed set and every header that Connection names."""
    raw = [
        (b"Host", b"r"),
        (b"Connection", b"Upgrade, HTTP2-Settings, X-Hop"),
        (b"Upgrade", b"h2c"),
        (b"HTTP2-Settings", b"AAMAAABk"),
        (b"X-Hop", b"1"),
        (b"TE", b"trailers"),
        (b"Proxy-Authorization", b"Basic eDp5"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Content-Length", b"13"),
        (b"X-CASE", b"kept"),
    ]
    sent = headers.to_engine(raw, peer="10.0.0.9", request_id="id-1")
    assert sent == [(b"X-CASE", b"kept"), (b"X-Forwarded-For", b"10.0.0.9"), (b"x-request-id", b"id-1")]


def test_connection_lists_of_several_lines_count_together() -> None:
    raw = [(b"connection", b"a , b"), (b"Connection", b"C"), (b"A", b"1"), (b"B", b"1"), (b"c", b"1"), (b"D", b"1")]
    assert headers.to_client(raw) == [(b"D", b"1")]


def test_internal_headers_from_outside_are_removed_and_the_peer_is_appended() -> None:
    """SEC-02 (https://github.com/agentgateway/agentgateway/pull/3144): clients choose no engine and no state."""
    raw = [
        (b"x-gateway-destination-endpoint", b"169.254.169.254:80"),
        (b"target-pod", b"10.0.0.9:8000"),
        (b"x-router-engine", b"b"),
        (b"x-request-attempt", b"99"),
        (b"x-envoy-max-retries", b"50"),
        (b"X-Headrace-Engine", b"b"),
        (b"X-Headrace-Priority", b"batch"),
        (b"X-Forwarded-For", b"1.2.3.4"),
        (b"x-session-id", b"s1"),
    ]
    sent = headers.to_engine(raw, peer="10.1.1.1", request_id="i", keep=frozenset({b"x-headrace-priority"}))
    assert sent == [
        (b"X-Headrace-Priority", b"batch"),
        (b"x-session-id", b"s1"),
        (b"X-Forwarded-For", b"1.2.3.4, 10.1.1.1"),
        (b"x-request-id", b"i"),
    ]


def test_an_engine_can_not_speak_for_the_router() -> None:
    raw = [(b"X-Headrace-Engine", b"z"), (b"x-request-id", b"theirs"), (b"Content-Length", b"2"), (b"Via", b"x")]
    assert headers.to_client(raw) == [(b"Via", b"x")]


@pytest.mark.parametrize(
    ("given", "taken"),
    [(b"abc-1", "abc-1"), (b"", "fresh"), (b"x" * 129, "fresh"), (b"a\xc3\xa4", "fresh"), (b"a b", "fresh")],
)
def test_a_request_id_is_passed_when_harmless_else_made(given: bytes, taken: str) -> None:
    assert headers.request_id([(b"X-Request-Id", given)], "fresh") == taken
    assert headers.request_id([], "fresh") == "fresh"


def test_our_own_values_can_not_split_a_head() -> None:
    line = headers.said("x-headrace-engine", "a\r\nSet-Cookie: b")
    head = headers.head(200, b"OK\r\nX: y", [line])
    assert head == b"HTTP/1.1 200 OKX: y\r\nx-headrace-engine: aSet-Cookie: b\r\n\r\n"


@pytest.mark.parametrize(
    ("kind", "coding", "sse"),
    [
        (b"text/event-stream; charset=utf-8", None, True),
        (b"Text/Event-Stream", b"identity", True),
        (b"text/event-stream", b"gzip", False),
        (b"application/json", None, False),
    ],
)
def test_only_unencoded_event_streams_can_take_an_event(kind: bytes, coding: bytes | None, sse: bool) -> None:
    raw = [(b"Content-Type", kind)] + ([(b"Content-Encoding", coding)] if coding else [])
    assert headers.is_event_stream(raw) is sse


def test_stream_hints_keep_what_the_engine_said() -> None:
    """STR-07 (https://github.com/BerriAI/litellm/pull/25654): no buffering behind nginx, no caching."""
    assert headers.stream_hints([]) == [(b"X-Accel-Buffering", b"no"), (b"Cache-Control", b"no-cache")]
    assert headers.stream_hints([(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]) == []
