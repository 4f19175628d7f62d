"""Heads of engines' answers: strict where framing hangs on it, tolerant where nothing does."""

from __future__ import annotations

import pytest

from headrace_router.http1 import response_head
from headrace_router.http1.response_head import BrokenHead, ResponseHead, parse_response_head


def read(lines: bytes, *, status: bytes = b"HTTP/1.1 200 OK", to_head: bool = False) -> ResponseHead:
    return parse_response_head(status + b"\r\n" + lines + b"\r\n", bodiless_request=to_head)


BROKEN = {
    "two_lengths": b"Content-Length: 1\r\nContent-Length: 2\r\n",
    "same_length_twice": b"Content-Length: 1\r\nContent-Length: 1\r\n",
    "list_of_lengths": b"Content-Length: 1, 1\r\n",
    "signed_length": b"Content-Length: +1\r\n",
    "huge_length": b"Content-Length: 1000000000000000\r\n",
    "length_and_chunked": b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    "chunked_and_length": b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
    "coding_twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "other_coding": b"Transfer-Encoding: gzip, chunked\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
    "fold": b"X: a\r\n b\r\n",
    "space_before_colon": b"Content-Length : 1\r\n",
    "no_colon": b"Content-Length 1\r\n",
    "lf": b"X: a\nContent-Length: 1\r\n",
    "cr": b"X: a\rContent-Length: 1\r\n",
    "nul": b"X: \x00\r\n",
    "too_many": b"X: a\r\n" * 101,
    "too_large": b"X: " + b"a" * 33_000 + b"\r\n",
    "head_too_large": (b"X: " + b"a" * 30_000 + b"\r\n") * 3,
    "empty_line": b"\r\nX: a\r\n",
}


@pytest.mark.parametrize("lines", BROKEN.values(), ids=BROKEN)
def test_what_could_be_read_in_two_ways_is_broken(lines: bytes) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966) for heads: never a guess."""
    with pytest.raises(BrokenHead, match=r"\w"):
        read(lines)


@pytest.mark.parametrize(
    "status",
    [
        b"HTTP/1.1",
        b"HTTP/1.1 ",
        b"HTTP/1.1 20",
        b"HTTP/1.1 2000",
        b"HTTP/1.1 200OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1 099 X",
        b"HTTP/1.1 600 X",
        b"HTTP/1.1 \xb2\xb0\xb0 X",
        b"HTTP/2.0 200 OK",
        b"HTTP/1.2 200 OK",
        b"http/1.1 200 OK",
        b"ICY 200 OK",
        b"HTTP/1.1 200 O\rK",
        b"HTTP/1.1 200 O\x00K",
        b"\r\nHTTP/1.1 200 OK",
        b"",
    ],
    ids=lambda value: value.decode("latin-1"),
)
def test_broken_status_lines(status: bytes) -> None:
    with pytest.raises(BrokenHead):
        read(b"Content-Length: 0\r\n", status=status)


@pytest.mark.parametrize("raw", [b"", b"\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\nX"])
def test_a_head_without_its_end_is_broken(raw: bytes) -> None:
    with pytest.raises(BrokenHead):
        parse_response_head(raw, bodiless_request=False)


def test_a_head_by_length() -> None:
    head = read(b"Date: x\r\nContent-Length: 12\r\nX-A:  b \r\n", status=b"HTTP/1.1 404 Not  Found \xe9")
    assert (head.status, head.reason, head.minor) == (404, b"Not  Found \xe9", 1)
    assert (head.length, head.chunked, head.until_close, head.bodiless, head.keep_alive) == (
        12,
        False,
        False,
        False,
        True,
    )
    assert head.get(b"x-a") == b"b"
    assert head.get(b"x-b") is None
    assert [line.name for line in head.marked] == [b"content-length"]


@pytest.mark.parametrize("status", [b"HTTP/1.1 200", b"HTTP/1.1 200 "])
def test_a_reason_may_be_left_out(status: bytes) -> None:
    assert read(b"Content-Length: 0\r\n", status=status).reason == b""


def test_undecodable_values_pass() -> None:
    """Only framing is worth a failed answer."""
    assert read(b"X: \xff\r\nContent-Length: 0\r\n").get(b"x") == b"\xff"


def test_chunks() -> None:
    head = read(b"Transfer-Encoding: Chunked\r\n")
    assert (head.length, head.chunked, head.until_close, head.keep_alive) == (None, True, False, True)


def test_a_body_up_to_the_end_of_the_connection() -> None:
    head = read(b"Connection: keep-alive\r\n")
    assert (head.length, head.chunked, head.until_close, head.keep_alive) == (None, False, True, False)


@pytest.mark.parametrize(
    ("status", "to_head"),
    [(b"HTTP/1.1 200 OK", True), (b"HTTP/1.1 204 X", False), (b"HTTP/1.1 304 X", False), (b"HTTP/1.1 100 X", False)],
)
@pytest.mark.parametrize("lines", [b"", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_answers_without_a_body(status: bytes, to_head: bool, lines: bytes) -> None:
    head = read(lines, status=status, to_head=to_head)
    assert (head.bodiless, head.chunked, head.until_close, head.keep_alive) == (True, False, False, True)
    assert head.length == (5 if b"5" in lines else None)


@pytest.mark.parametrize(
    ("minor", "lines", "kept"),
    [
        (1, b"", True),
        (1, b"Connection: close\r\n", False),
        (1, b"Connection: x, Close\r\nConnection: keep-alive\r\n", False),
        (0, b"", False),
        (0, b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_keep_alive(minor: int, lines: bytes, kept: bool) -> None:
    assert read(b"Content-Length: 0\r\n" + lines, status=b"HTTP/1.%d 200 OK" % minor).keep_alive is kept


def test_chunked_in_1_0_is_broken() -> None:
    with pytest.raises(BrokenHead):
        read(b"Transfer-Encoding: chunked\r\n", status=b"HTTP/1.0 200 OK")


def test_known_status_lines_are_bounded() -> None:
    for number in range(1_000):
        read(b"Content-Length: 0\r\n", status=b"HTTP/1.1 200 %d" % number)
    read(b"Content-Length: 0\r\n", status=b"HTTP/1.1 200 " + b"long" * 50)
    assert len(response_head._KNOWN) <= 256
    assert not [line for line in response_head._KNOWN if b"long" in line]
