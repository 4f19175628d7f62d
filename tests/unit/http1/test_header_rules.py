"""Header rules of both directions on lines."""

from __future__ import annotations

import pytest

from headrace_router.http1 import header_rules
from headrace_router.http1.lines import FROM_CLIENTS, Line


def lines(*raw: bytes) -> list[Line]:
    return [FROM_CLIENTS[each] for each in raw]


def all_rules(given: list[Line]) -> int:
    together = 0
    for line in given:
        together |= line.rule
    return together


def to_engine(
    given: list[Line],
    *,
    peer: str | None = "10.0.0.9",
    keep: frozenset[bytes] = frozenset(),
    drop_authorization: bool = False,
) -> bytes:
    """The same with the head's flags and without."""
    sent = [
        header_rules.to_engine(
            given, peer=peer, request_id="id-1", keep=keep, drop_authorization=drop_authorization, rules=rules
        )
        for rules in (None, all_rules(given))
    ]
    assert sent[0] == sent[1]
    return sent[0]


def to_client(given: list[Line], *, extra: bytes = b"", sse: bool = False) -> bytes:
    """The same with the head's flags and without."""
    sent = [header_rules.to_client(given, extra=extra, sse=sse, rules=rules) for rules in (None, all_rules(given))]
    assert sent[0] == sent[1]
    return sent[0]


ENDS = b"X-Forwarded-For: 10.0.0.9\r\nx-request-id: id-1\r\n"


def test_hop_by_hop_and_what_connection_names_end_here() -> None:
    """PRO-04 (https://github.com/golang/go/issues/16875): the fixed set and every header that Connection names."""
    given = lines(
        b"Host: r",
        b"Connection: Upgrade, HTTP2-Settings, X-Hop",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABk",
        b"X-Hop: 1",
        b"TE: trailers",
        b"Trailer: X-T",
        b"Proxy-Authorization: Basic eDp5",
        b"Proxy-Authenticate: Basic",
        b"Proxy-Connection: keep-alive",
        b"Keep-Alive: timeout=5",
        b"Content-Length: 13",
        b"Expect: 100-continue",
        b"X-CASE:   kept ",
    )
    assert to_engine(given) == b"X-CASE:   kept \r\n" + ENDS
    assert to_client(given) == b"Host: r\r\nExpect: 100-continue\r\nX-CASE:   kept \r\n"


def test_connection_lists_of_several_lines_count_together() -> None:
    given = lines(b"connection: a , b", b"Connection: C,close", b"A: 1", b"B: 1", b"c: 1", b"D: 1", b"close: 1")
    assert to_client(given) == b"D: 1\r\nclose: 1\r\n"
    assert to_engine(given) == b"D: 1\r\nclose: 1\r\n" + ENDS


def test_internal_headers_from_outside_are_removed_and_the_peer_is_appended() -> None:
    """SEC-02 (https://github.com/agentgateway/agentgateway/pull/3144): clients choose no engine and no state."""
    given = lines(
        b"x-gateway-destination-endpoint: 169.254.169.254:80",
        b"x-gateway-destination-endpoint-subset: a",
        b"target-pod: 10.0.0.9:8000",
        b"x-router-engine: b",
        b"x-request-attempt: 99",
        b"x-envoy-max-retries: 50",
        b"X-Headrace-Engine: b",
        b"X-Headrace-Priority: batch",
        b"X_Headrace_Priority: batch",
        b"X-Forwarded-For: 1.2.3.4",
        b"x_forwarded_for: 6.6.6.6",
        b"X-Forwarded-For: 5.6.7.8",
        b"x-session-id: s1",
    )
    assert to_engine(given, keep=frozenset({b"x-headrace-priority"})) == (
        b"X-Headrace-Priority: batch\r\nx-session-id: s1\r\n"
        b"X-Forwarded-For: 1.2.3.4, 5.6.7.8, 10.0.0.9\r\nx-request-id: id-1\r\n"
    )
    assert to_engine(given[-2:], peer=None) == b"x-session-id: s1\r\nX-Forwarded-For: 5.6.7.8\r\nx-request-id: id-1\r\n"


def test_a_forwarded_list_that_connection_names_is_forgotten() -> None:
    given = lines(b"Connection: x-forwarded-for", b"X-Forwarded-For: 1.2.3.4")
    assert to_engine(given) == ENDS
    assert to_engine(given, peer=None) == b"x-request-id: id-1\r\n"


def test_undecodable_lists_pass_byte_for_byte() -> None:
    assert to_engine(lines(b"X-Forwarded-For: \xff")).startswith(b"X-Forwarded-For: \xff, 10.0.0.9\r\n")


def test_a_peer_without_an_address() -> None:
    assert to_engine([], peer=None) == b"x-request-id: id-1\r\n"


def test_the_clients_key_ends_here_when_it_is_the_routers_own() -> None:
    given = lines(b"Authorization: Bearer k", b"X-Api-Key: k", b"api-key: k", b"X_Api_Key: k", b"Accept: */*")
    assert to_engine(given, drop_authorization=True) == b"Accept: */*\r\n" + ENDS
    assert to_engine(given).count(b": k\r\n") == 3
    steered = [*given, *lines(b"x-envoy-a: 1")]
    assert to_engine(steered, drop_authorization=True) == b"Accept: */*\r\n" + ENDS


def test_an_engine_can_not_speak_for_the_router() -> None:
    given = lines(
        b"X-Headrace-Engine: z",
        b"X-Headrace-Reason: z",
        b"X-Headrace-Table: z",
        b"X-Headrace-Attempts: z",
        b"x-request-id: theirs",
        b"Content-Length: 2",
        b"Via: x",
        b"Set-Cookie: a=b",
        b"Location: http://localhost:9999/steal",
    )
    assert to_client(given, extra=b"X: y\r\n") == (
        b"Via: x\r\nSet-Cookie: a=b\r\nLocation: http://localhost:9999/steal\r\nX: y\r\n"
    )


def test_stream_hints_keep_what_the_engine_said() -> None:
    """STR-07 (https://github.com/BerriAI/litellm/pull/25654): no buffering behind nginx, no caching."""
    assert to_client([], sse=True) == b"X-Accel-Buffering: no\r\nCache-Control: no-cache\r\n"
    said = lines(b"cache-control: no-store", b"x-accel-buffering: no")
    assert to_client(said, sse=True) == b"cache-control: no-store\r\nx-accel-buffering: no\r\n"
    hidden = lines(b"Connection: cache-control", b"cache-control: max-age=9")
    assert to_client(hidden, sse=True) == b"X-Accel-Buffering: no\r\nCache-Control: no-cache\r\n"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (b"abc-1", "abc-1"),
        (b"", "fresh"),
        (b"x" * 128, "x" * 128),
        (b"x" * 129, "fresh"),
        (b"a\xc3\xa4", "fresh"),
        (b"a b", "fresh"),
        (b"a,b", "fresh"),
    ],
)
def test_a_request_id_is_passed_when_harmless_else_made(given: bytes, taken: str) -> None:
    found = lines(b"Accept: */*", b"X-Request-Id: " + given, b"X-Request-Id: second")
    assert header_rules.request_id(found, lambda: "fresh") == taken


def test_a_request_id_that_is_not_there_is_made() -> None:
    assert header_rules.request_id(lines(b"Accept: */*"), lambda: "fresh") == "fresh"


def test_a_request_that_goes_in_circles() -> None:
    """Many proxies in one list or many lists: an engine's address is a router's."""
    hops = [b"X-Forwarded-For: " + b", ".join([b"10.0.0.1"] * 10)] * 2
    assert not header_rules.in_a_loop(lines(*hops, b"X-Other: a,b"))
    assert header_rules.in_a_loop(lines(*hops, b"x-forwarded-for: 10.0.0.1"))


def test_a_value_that_is_no_utf_8_is_named() -> None:
    assert header_rules.garbled(lines("X-A: \u00e4".encode(), b"Accept: */*")) is None
    assert header_rules.garbled(lines(b"Accept: */*", b"X-Name: caf\xe9")) == "x-name"


@pytest.mark.parametrize(
    ("given", "sse"),
    [
        ([b"Content-Type: text/event-stream; charset=utf-8"], True),
        ([b"Content-Type: Text/Event-Stream", b"Content-Encoding: Identity"], True),
        ([b"Content-Type: text/event-stream", b"Content-Encoding: gzip"], False),
        ([b"Content-Encoding: gzip", b"Content-Type: text/event-stream"], False),
        ([b"Content-Type: application/json"], False),
        ([b"Content-Type: application/json", b"Content-Type: text/event-stream"], False),
        ([b"Accept: text/event-stream"], False),
        ([], False),
    ],
)
def test_only_unencoded_event_streams_can_take_an_event(given: list[bytes], sse: bool) -> None:
    assert header_rules.is_event_stream(lines(*given)) is sse
