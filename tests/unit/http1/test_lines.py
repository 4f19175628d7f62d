"""Header lines: what stands on them, which are kept, and that nobody can make the keeping a burden."""

from __future__ import annotations

import pytest

from headrace_router.http1 import lines as rules
from headrace_router.http1.lines import FROM_CLIENTS, KnownLines, Malformed, line, made

SECRETS = [
    b"%b: %b" % (name, b"s3cr3t")
    for name in (
        b"Authorization",
        b"Proxy-Authorization",
        b"Cookie",
        b"Set-Cookie",
        b"X-Api-Key",
        b"api-key",
        b"X-Goog-Api-Key",
        b"X-Amz-Security-Token",
        b"X-My-Very-Own-Secret",
        b"X-Session-Id",
        b"X-Forwarded-For",
        b"traceparent",
        b"X-Request-Id",
    )
]


@pytest.mark.parametrize("raw", SECRETS, ids=lambda raw: raw.partition(b":")[0].decode())
def test_what_tells_a_client_from_another_is_never_kept(raw: bytes) -> None:
    for known in (FROM_CLIENTS, KnownLines()):
        for _ in range(rules._ADMITTED):
            assert known[raw].value
        assert raw not in known
    assert "s3cr3t" not in repr(line(raw))


@pytest.mark.parametrize(
    "raw",
    [b"Accept: */*", b"x-stainless-lang: python", b"Content-Type: application/json", b"anthropic-version: 2023-06-01"],
)
def test_what_many_send_alike_is_parsed_once(raw: bytes) -> None:
    known = KnownLines()
    for _ in range(rules._ADMITTED):
        assert raw not in known
        assert known[raw].raw == raw + b"\r\n"
    assert known[raw] is known[raw]


def test_long_lines_are_not_kept() -> None:
    known = KnownLines()
    raw = b"Accept: " + b"a" * 600
    for _ in range(rules._ADMITTED):
        assert known[raw].value == b"a" * 600
    assert not known


def test_a_client_that_sends_new_lines_without_end_fills_nothing() -> None:
    """Bounded in number and bytes, and afterwards a usual line is kept as before."""
    known = KnownLines()
    for number in range(10_000):
        known[b"User-Agent: %d" % number]
        known[b"X-Stainless-%d: 1" % number]
        known[b"X-%d: 1" % number]
    assert len(known) <= rules._MAX_KNOWN
    assert len(known._names) <= rules._MAX_KNOWN
    usual = [known[b"Accept: */*"] for _ in range(2 * rules._ADMITTED)]
    assert usual[-1] is known[b"Accept: */*"]
    for _ in range(rules._ADMITTED):
        known[b"X-%b: 1" % (b"a" * 100)]
    assert not [name for name in known._names if len(name) > rules._MAX_KNOWN_NAME]


@pytest.mark.parametrize(
    ("raw", "flags"),
    [
        (b"X-A: b", 0),
        (b"HOST: r", rules.STOPS_BEFORE_ENGINE | rules.HOST),
        (b"Host: a/b", rules.STOPS_BEFORE_ENGINE | rules.HOST | rules.BAD_HOST),
        (b"Keep-Alive: timeout=5", rules._HOP),
        (b"Content-Length: 5", rules._HOP | rules.LENGTH),
        (b"Content-Length: 5x", rules._HOP | rules.LENGTH | rules.BAD_LENGTH),
        (b"Transfer-Encoding: Chunked", rules._HOP | rules.CODING | rules.CHUNKED),
        (b"Transfer-Encoding: gzip", rules._HOP | rules.CODING),
        (b"Connection: close", rules._HOP | rules.CONNECTION | rules.CLOSES),
        (b"Connection: Keep-Alive, X", rules._HOP | rules.CONNECTION | rules.KEEPS | rules.NAMES),
        (b"Connection:", rules._HOP | rules.CONNECTION),
        (b"Content-Type: Text/Event-Stream ; charset=utf-8", rules.KIND | rules.EVENT_STREAM),
        (b"Content-Type: application/json", rules.KIND | rules.JSON),
        (b"Content-Type: text/plain", rules.KIND),
        (b"Content-Encoding: gzip", rules.ENCODED),
        (b"Content-Encoding: Identity", 0),
        (b"Authorization: Bearer k", rules.CREDENTIAL | rules.AUTHORIZATION),
        (b"X-Api-Key: k", rules.CREDENTIAL),
        (b"X-A: \xff", rules.GARBLED),
        (b"Content-Type: \xff", rules.GARBLED | rules.KIND),
        ("X-A: \u00e4".encode(), 0),
        (b"X-A: a\tb", 0),
        (b"x-envoy-max-retries: 50", rules.STEERS),
        (b"X-Headrace-Priority: batch", rules.STEERS),
        (b"X-Headrace-Engine: b", rules.STEERS | rules.STOPS_BEFORE_CLIENT),
        # Behind a CGI-like server these are the same names.
        (b"X_Forwarded_For: 1.2.3.4", rules.STOPS_BEFORE_ENGINE),
        (b"Transfer_Encoding: chunked", rules._HOP),
        (b"Content_Length: 5", rules._HOP),
        (b"X_HEADRACE_PRIORITY: batch", rules.STEERS),
    ],
    ids=lambda value: value.decode("latin-1") if isinstance(value, bytes) else "",
)
def test_flags(raw: bytes, flags: int) -> None:
    found = line(raw)
    assert found is not None
    assert found.rule == flags


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"X-Secret sk-1", "a header line has a colon"),
        (b"X A: sk-1", "a token with a colon right behind it, not 'X A'"),
        (b"X-A: sk-1\x00", "the value of x-a has a control character"),
        (b"X-A: \xff\x00", "the value of x-a has a control character"),
        (b"X-A: " + b"s" * 40_000, "the line of x-a has more than 32768 bytes"),
    ],
)
def test_what_is_no_header_line(raw: bytes, says: str) -> None:
    assert line(raw) is None
    with pytest.raises(Malformed) as told:
        FROM_CLIENTS[raw]
    assert says in str(told.value)
    assert "sk-1" not in str(told.value)


def test_our_own_lines_can_not_split_a_head() -> None:
    assert made("x-headrace-engine", "a\r\nSet-Cookie: b\x00").raw == b"x-headrace-engine: aSet-Cookie: b\r\n"
    assert made("X-A", b"\xff").value == b"\xff"
    assert made("Connection", "close").rule == 0
