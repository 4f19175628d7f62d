"""Heads of requests: what is read, what is refused, what is refused before its end has come."""

from __future__ import annotations

import pytest

from headrace_router.http1 import paths, request_head
from headrace_router.http1.request_head import (
    MAX_HEAD,
    MAX_LINES,
    BadHead,
    RequestHead,
    find_end,
    parse_request_head,
    refuse_early,
)
from support.hostile_http import HEADS, PATHS, Hostile


def read(raw: bytes) -> RequestHead | BadHead | None:
    """What a listener makes of bytes that come at once."""
    end = find_end(raw, 0)
    return parse_request_head(raw[:end]) if end > 0 else refuse_early(raw, 0)


def good(raw: bytes) -> RequestHead:
    head = read(raw)
    assert isinstance(head, RequestHead), head
    return head


@pytest.mark.parametrize("hostile", HEADS, ids=lambda row: row.name)
def test_what_could_be_read_in_two_ways_is_refused(hostile: Hostile) -> None:
    """Request smuggling and header injection; sources stand in support/hostile_http.py, row by row."""
    found = read(hostile.raw)
    assert isinstance(found, BadHead), found
    assert found.status == hostile.status, found.message
    assert found.code and found.message


@pytest.mark.parametrize("hostile", HEADS, ids=lambda row: row.name)
def test_it_is_refused_alike_when_it_comes_in_pieces(hostile: Hostile) -> None:
    """As a connection reads: look for the end, else for what is wrong already."""
    piece = 1 if len(hostile.raw) < 400 else 997
    buffer, seen = bytearray(), 0
    found: RequestHead | BadHead | None = None
    while found is None and seen < len(hostile.raw):
        buffer += hostile.raw[seen : seen + piece]
        end = find_end(buffer, max(0, seen - 3))
        found = parse_request_head(bytes(buffer[:end])) if end > 0 else refuse_early(buffer, seen)
        seen = len(buffer)
    assert isinstance(found, BadHead), found
    assert found.status == hostile.status


@pytest.mark.parametrize("hostile", PATHS, ids=lambda row: row.name)
def test_paths_are_compared_as_they_came(hostile: Hostile) -> None:
    """SEC-01 (https://github.com/denn-gubsky/loomcycle/pull/854): sound heads whose target leads nowhere."""
    head = good(hostile.raw)
    assert head.target.encode() in hostile.raw
    refused = paths.resolve(head.method, head.target)
    assert isinstance(refused, paths.Refused)
    assert refused.status == hostile.status


def test_a_head() -> None:
    head = good(
        b"POST /v1/files/a%2Fb%20c?sig=%28x%29 HTTP/1.1\r\nHost: [::1]:8080\r\nContent-Length:\t0012 \r\n"
        b"X-Empty:\r\nX-Two: a\r\nx-two:  b\t\r\n\r\n"
    )
    assert (head.method, head.target, head.minor) == ("POST", "/v1/files/a%2Fb%20c?sig=%28x%29", 1)
    assert head.length == 12
    assert [(line.name, line.value) for line in head.lines] == [
        (b"host", b"[::1]:8080"),
        (b"content-length", b"0012"),
        (b"x-empty", b""),
        (b"x-two", b"a"),
        (b"x-two", b"b"),
    ]
    assert head.lines[1].raw == b"Content-Length:\t0012 \r\n"
    assert head.get(b"x-two") == b"a"
    assert head.all(b"x-two") == [b"a", b"b"]
    assert head.get(b"x-none") is None
    assert [line.name for line in head.marked] == [b"host", b"content-length"]
    assert (head.chunked, head.keep_alive, head.expects, head.upgrade) == (False, True, False, False)


@pytest.mark.parametrize(
    "front",
    [pytest.param(b"", id="none"), pytest.param(b"\r\n", id="one_empty_line")],
)
def test_one_empty_line_first_is_tolerated(front: bytes) -> None:
    assert good(front + b"GET / HTTP/1.1\r\nHost: r\r\n\r\n").target == "/"


def test_no_header_lines_in_1_0() -> None:
    head = good(b"GET / HTTP/1.0\r\n\r\n")
    assert (head.minor, head.keep_alive, head.lines, head.length) == (0, False, [], None)


@pytest.mark.parametrize(
    ("version", "lines", "kept"),
    [
        pytest.param(b"1.1", b"", True, id="1.1"),
        pytest.param(b"1.1", b"Connection: close\r\n", False, id="1.1-close"),
        pytest.param(b"1.1", b"Connection: Keep-Alive\r\nConnection: x, CLOSE\r\n", False, id="1.1-close-listed"),
        pytest.param(b"1.1", b"Connection: , keep-alive,\r\n", True, id="1.1-keep-alive"),
        pytest.param(b"1.0", b"", False, id="1.0"),
        pytest.param(b"1.0", b"Connection: keep-alive\r\n", True, id="1.0-keep-alive"),
        pytest.param(b"1.0", b"Connection: keep-alive, close\r\n", False, id="1.0-both"),
    ],
)
def test_keep_alive(version: bytes, lines: bytes, kept: bool) -> None:
    assert good(b"GET / HTTP/%b\r\nHost: r\r\n%b\r\n" % (version, lines)).keep_alive is kept


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b"CHUNKED \t"])
def test_chunked(value: bytes) -> None:
    head = good(b"POST / HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: %b\r\n\r\n" % value)
    assert head.chunked
    assert head.length is None


def test_expectations() -> None:
    raw = b"POST / HTTP/1.%d\r\nHost: r\r\nExpect: %b\r\nContent-Length: 1\r\n\r\n"
    assert good(raw % (1, b"100-Continue")).expects
    assert not good(raw % (0, b"100-continue")).expects
    assert not good(raw % (0, b"anything")).expects


def test_an_offer_of_another_protocol_is_seen() -> None:
    """PRO-04 (https://github.com/golang/go/issues/16875): it is no fault."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
    head = good(b"POST / HTTP/1.1\r\nHost: r\r\n%b\r\n" % offer)
    assert head.upgrade
    assert head.keep_alive


@pytest.mark.parametrize(
    "host", [b"", b"r", b"r:80", b"r:", b"10.0.0.1:8080", b"[::1]", b"[fe80::1]:1", b"a_b.svc", b"%41", b"a,b"]
)
def test_hosts(host: bytes) -> None:
    assert good(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host).get(b"host") == host


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1/models?a=b",
        "//x",
        "http://h",
        "HTTPS://h:1/v1/models",
        "http://u@h/x",
        "http://h/a//b",
        "/a#b",
        "/:?[]@",
    ],
)
def test_targets_come_through_as_they_are(target: str) -> None:
    """PRO-05 (https://github.com/aio-libs/aiohttp/issues/8486)."""
    assert good(b"GET %b HTTP/1.1\r\nHost: r\r\n\r\n" % target.encode()).target == target


def test_targets_with_a_query_are_not_kept_and_known_ones_are_bounded() -> None:
    known = request_head._KNOWN
    good(b"GET /a?key=secret HTTP/1.1\r\nHost: r\r\n\r\n")
    good(b"GET http://h/absolute HTTP/1.1\r\nHost: r\r\n\r\n")
    good(b"GET /%b HTTP/1.1\r\nHost: r\r\n\r\n" % (b"long" * 40))
    assert not [line for line in known if b"secret" in line or b"absolute" in line or b"long" in line]
    for number in range(1_000):
        good(b"GET /%d HTTP/1.1\r\nHost: r\r\n\r\n" % number)
    assert len(known) <= 256


def test_sizes_up_to_the_bounds() -> None:
    target = b"/" + b"a" * (request_head.MAX_LINE - 1)
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 400) for number in range(MAX_LINES - 1))
    raw = b"GET %b HTTP/1.1\r\nHost: r\r\n%b\r\n" % (target, lines)
    assert len(raw) <= MAX_HEAD
    head = good(raw)
    assert len(head.lines) == MAX_LINES
    assert len(good(b"GET / HTTP/1.1\r\nHost: r\r\nX: %b\r\n\r\n" % (b"a" * (32_768 - 3))).get(b"x") or b"") == 32_765


@pytest.mark.parametrize(
    "raw", [b"", b"\r", b"\r\n", b"GET", b"GET ", b"\r\nGET / HT", b"GET / HTTP/1.1\r\nHost: r\r\n\r"]
)
def test_what_may_still_become_a_head_is_not_refused(raw: bytes) -> None:
    assert refuse_early(raw, 0) is None


@pytest.mark.parametrize("raw", [b" ", b"\n", b"\r\r", b"\r\n\n", b"GET / HTTP/1.1\rX", b"G\x01T", b"GET\n"])
def test_what_can_not_is(raw: bytes) -> None:
    refused = refuse_early(raw, 0)
    assert isinstance(refused, BadHead)
    assert refused.status == 400


def test_a_stray_byte_is_found_across_reads() -> None:
    buffer = bytearray(b"GET / HTTP/1.1\r")
    assert refuse_early(buffer, 0) is None
    assert refuse_early(buffer + b"X", len(buffer)) is not None
    assert refuse_early(buffer + b"\n", len(buffer)) is None


@pytest.mark.parametrize(
    "raw", [b"", b"\r\n", b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: r\r\n", b"GET / HTTP/1.1\r\n\r\nX"]
)
def test_a_head_without_its_end_is_refused_too(raw: bytes) -> None:
    assert isinstance(parse_request_head(raw), BadHead)


def test_the_end_of_a_head() -> None:
    assert find_end(b"a\r\n\r\nb", 0) == 5
    assert find_end(bytearray(b"a\r\n\r\nb"), 1) == 5
    assert find_end(b"a\r\n\r\nb", 2) == -1
    assert find_end(b"a\n\nb\r\n", 0) == -1
