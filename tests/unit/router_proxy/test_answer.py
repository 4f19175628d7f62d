"""The client's side on the wire: framing, one head, and ends that can't be mistaken."""

import pytest

from headrace_router.proxy.answer import Answer
from support.fake_legs import FakeTransport

LINES = b"X-One: 1\r\n"


def made(*, old: bool = False, keep_alive: bool = True, bodiless: bool = False) -> tuple[FakeTransport, Answer]:
    transport = FakeTransport()
    return transport, Answer(transport, old=old, keep_alive=keep_alive, bodiless=bodiless)


def test_head_and_first_body_are_one_write() -> None:
    transport, answer = made()
    answer.begin(200, b"Fine", [LINES], 4)
    answer.put(b"ab", b"ab")
    answer.put(b"cd", b"cd")
    answer.end()
    assert transport.written == [b"HTTP/1.1 200 Fine\r\nX-One: 1\r\nContent-Length: 4\r\n\r\nab", b"cd"]
    assert answer.complete


def test_an_engines_chunks_pass_unchanged() -> None:
    """router.md, Streams: chunk boundaries pass."""
    transport, answer = made()
    answer.begin(200, b"OK", [LINES], None, chunked=True)
    answer.put(b"0A\r\n0123", b"0123")
    answer.put(b"456789\r\n", b"456789")
    answer.end()
    assert b"".join(transport.written).endswith(b"Transfer-Encoding: chunked\r\n\r\n0A\r\n0123456789\r\n0\r\n\r\n")


def test_an_unframed_answer_is_chunked_for_http_1_1() -> None:
    transport, answer = made()
    answer.begin(200, b"OK", [LINES], None)
    answer.put(b"abc", b"abc")
    answer.put(b"", b"")
    answer.end()
    assert b"".join(transport.written).endswith(b"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")


@pytest.mark.parametrize("keep_alive", [True, False])
def test_http_1_0_has_no_chunks(keep_alive: bool) -> None:
    """PRO-02 (https://github.com/aio-libs/aiohttp/issues/476): an unframed body ends with the connection."""
    transport, answer = made(old=True, keep_alive=keep_alive)
    answer.begin(200, b"OK", [LINES], None, chunked=True)
    answer.put(b"3\r\nabc\r\n", b"abc")
    answer.end()
    assert b"".join(transport.written) == b"HTTP/1.1 200 OK\r\nX-One: 1\r\nConnection: close\r\n\r\nabc"
    assert (answer.complete, answer.keep_alive) == (True, False)


def test_http_1_0_with_a_length_may_be_kept() -> None:
    transport, answer = made(old=True)
    answer.whole(200, b"OK", LINES, b"abc")
    assert b"Connection: keep-alive\r\n\r\nabc" in transport.written[0]
    assert answer.keep_alive


@pytest.mark.parametrize(("status", "length", "told"), [(204, 5, False), (304, 5, True), (200, 5, True)])
def test_answers_without_a_body_say_what_it_would_be(status: int, length: int, told: bool) -> None:
    transport, answer = made(bodiless=status == 200)
    answer.begin(status, b"X", [], length)
    answer.put(b"abcde", b"abcde")
    answer.end()
    sent = b"".join(transport.written)
    assert (b"Content-Length: 5" in sent) is told
    assert sent.endswith(b"\r\n\r\n")
    assert answer.complete


@pytest.mark.parametrize("chunked", [True, False])
def test_an_event_is_told_as_a_chunk_and_no_end_follows(chunked: bool) -> None:
    """STR-01 (https://github.com/true-async/server/issues/171)."""
    transport, answer = made()
    answer.begin(200, b"OK", [], None, chunked=chunked)
    answer.put(b"3\r\nabc\r\n", b"abc")
    transport_closed_later(answer)
    assert b"".join(transport.written).endswith(b"3\r\nabc\r\n5\r\nevent\r\n")
    assert (transport.closed, transport.aborted, answer.complete, answer.keep_alive) == (True, False, False, False)


def transport_closed_later(answer: Answer) -> None:
    from support.fake_loop import FakeLoop

    loop = FakeLoop()
    with loop.running():
        answer.fail(b"event", at_boundary=True)
    assert loop.timers == 1, "a client that takes nothing doesn't hold the connection"


@pytest.mark.parametrize(
    ("length", "chunked", "event", "at_boundary"),
    [(10, False, b"event", True), (None, True, b"event", False), (None, True, None, True), (None, False, None, True)],
    ids=["length", "within a chunk", "no event", "no event, our chunks"],
)
def test_anything_else_that_fails_is_cut(
    length: int | None, chunked: bool, event: bytes | None, at_boundary: bool
) -> None:
    """STR-01: where nothing can be said the connection is cut, never ended."""
    transport, answer = made()
    answer.begin(200, b"OK", [], length, chunked=chunked)
    answer.put(b"3\r\nabc\r\n", b"abc")
    answer.fail(event, at_boundary=at_boundary)
    assert transport.aborted
    assert b"event" not in b"".join(transport.written)
    assert not answer.complete


def test_a_body_short_of_its_length_is_cut() -> None:
    transport, answer = made()
    answer.begin(200, b"OK", [], 5)
    answer.put(b"abc", b"abc")
    answer.end()
    assert transport.aborted
    assert not answer.complete


def test_more_than_the_length_is_dropped() -> None:
    transport, answer = made()
    answer.begin(200, b"OK", [], 3)
    answer.put(b"abcdef", b"abcdef")
    answer.put(b"ghi", b"ghi")
    answer.end()
    assert b"".join(transport.written).endswith(b"\r\n\r\nabc")


def test_a_closing_connection_is_told_at_once() -> None:
    transport, answer = made()
    answer.begin(200, b"OK", [], 3)
    transport.closed = True
    with pytest.raises(ConnectionResetError):
        answer.put(b"abc", b"abc")
    with pytest.raises(AssertionError, match="one status line"):
        answer.begin(502, b"Bad", [], 0)


def test_a_reason_can_not_split_the_head() -> None:
    transport, answer = made()
    answer.whole(200, b"OK\r\nX: y", b"", b"")
    assert transport.written[0].startswith(b"HTTP/1.1 200 OKX: y\r\n")
