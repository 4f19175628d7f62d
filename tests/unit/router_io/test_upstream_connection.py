"""One connection to an engine, byte by byte: what is written, what any split, cut or garbage of an answer comes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_router.upstream import connection
from headrace_router.upstream.port import Cut, Lost, Outgoing
from support.upstream_parts import Asked, Noted, outgoing_of

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"5;a=b\r\nhello\r\n1\r\n!\r\n"
# Name: bytes, framing on the wire as passed on, payload, kept afterwards, method.
ANSWERS: dict[str, tuple[bytes, bytes, bytes, bool, str]] = {
    "length": (OK + b"Content-Length: 5\r\nX: y\r\n\r\nhello", b"hello", b"hello", True, "POST"),
    "empty": (OK + b"Content-Length: 0\r\n\r\n", b"", b"", True, "POST"),
    "close": (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", b"hello", b"hello", False, "POST"),
    "chunked": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"0;z\r\nTrailer: x\r\n\r\n",
        CHUNKS.replace(b";a=b", b""), b"hello!", True, "POST",
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 1\r\n\r\nx",
        b"x", b"x", True, "POST",
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", b"", True, "POST"),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", b"", b"", True, "POST"),
    "head": (OK + b"Content-Length: 999\r\n\r\n", b"", b"", True, "HEAD"),
    "head of chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"", b"", True, "HEAD"),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", b"hello", False, "POST"),
    "old, kept": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", b"hello", b"hello", True,
        "POST",
    ),
}  # fmt: skip
UNFRAMED = OK + b"Content-Type: text/plain\r\n\r\nhello"
FINAL_HEADS = {
    name: data.index(b"\r\n\r\n", data.rindex(b"HTTP/1.")) + 4 for name, (data, *_) in ANSWERS.items()
}  # fmt: skip


def asked(name: str, *, used: bool = False) -> Asked:
    return Asked(outgoing_of(method=ANSWERS[name][4]), used=used)


def is_whole(name: str, under_test: Asked) -> None:
    """The answer came as it is meant, and the connection is kept if and only if it may be."""
    _, raw, payload, kept, _ = ANSWERS[name]
    sink = under_test.sink
    assert (sink.outcome, sink.raw, sink.payload) == ("ended", raw, payload)
    assert (len(under_test.keeper.kept), under_test.transport.closed) == ((1, None) if kept else (0, "closed"))


def test_a_request_is_one_write_in_the_order_of_its_parts() -> None:
    under_test = Asked(
        Outgoing("POST", "/v1/rerank?sig=%28x%29&e=%zz|[]", [b"x-A: 1\r\n", b"B: \xc3\xbc\r\n"], b'{"a":1}')
    )
    assert under_test.transport.written == [
        b"POST /v1/rerank?sig=%28x%29&e=%zz|[] HTTP/1.1\r\nHost: engine:8000\r\n"
        b'x-A: 1\r\nB: \xc3\xbc\r\nContent-Length: 7\r\n\r\n{"a":1}'
    ]


def test_a_large_body_follows_as_fast_as_it_is_taken() -> None:
    """SCA-02 (https://github.com/BerriAI/litellm/issues/12669): 50 MiB must not be copied into a buffer at once."""
    body = bytes(range(256)) * 4096 * 3
    under_test = Asked(outgoing_of(body=body[: connection.AT_ONCE]))
    assert len(under_test.transport.written) == 1
    under_test = Asked(outgoing_of(body=b""))
    under_test.feed(ANSWERS["empty"][0])
    under_test.connection.pause_writing()
    under_test.ask(outgoing_of(body=body))
    assert len(under_test.transport.written) == 2, "the head and a first piece, no more"
    under_test.connection.resume_writing()
    assert b"".join(under_test.transport.written[1:]).partition(b"\r\n\r\n")[2] == body
    assert max(map(len, under_test.transport.written)) < 2**19


@pytest.mark.parametrize("name", ANSWERS)
def test_any_split_of_an_answer_is_the_same_answer(name: str) -> None:
    """STR-05 (https://github.com/envoyproxy/ai-gateway/issues/2162): edges of reads mean nothing."""
    data = ANSWERS[name][0]
    for at in range(len(data) + 1):
        under_test = asked(name)
        under_test.feed(data[:at], data[at:])
        is_whole(name, under_test)
    under_test = asked(name)
    under_test.feed(*(data[at : at + 1] for at in range(len(data))))
    is_whole(name, under_test)


@given(st.data())
def test_any_pieces_of_any_answer_come_to_the_same(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ANSWERS)))
    answer = ANSWERS[name][0]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    under_test = asked(name)
    under_test.feed(*(answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)))
    is_whole(name, under_test)


@pytest.mark.parametrize("how", ["eof", "reset"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_end_at_every_byte_is_told_by_what_the_engine_can_have_seen(name: str, how: str) -> None:
    """STR-01 (https://github.com/ai-dynamo/dynamo/pull/8430), RET-01 (https://github.com/aio-libs/aiohttp/issues/6138):
    never a clean end; a kept connection that closes without a byte says nothing about its engine, half a head does."""
    data, raw, payload, _, _ = ANSWERS[name]
    for used in (False, True):
        for at in range(len(data)):
            under_test = asked(name, used=used)
            under_test.feed(data[:at])
            under_test.end(how)
            sink = under_test.sink
            assert under_test.keeper.gone == [under_test.connection]
            assert under_test.keeper.kept == []
            if at < FINAL_HEADS[name]:
                assert isinstance(sink.outcome, Lost)
                assert sink.outcome.reused == (used and at == 0)
            else:
                assert isinstance(sink.outcome, Cut)
                assert raw.startswith(sink.raw)
                assert payload.startswith(sink.payload)


def test_without_framing_the_end_is_the_end_and_a_reset_is_none() -> None:
    """RFC 9112 6.3 (8) and 8: PRO-02 (https://github.com/aio-libs/aiohttp/issues/1828), on the engine's side."""
    for how, outcome in (("eof", "ended"), ("reset", "Cut")):
        for split in range(1, 6):
            under_test = Asked()
            under_test.feed(UNFRAMED[:-split], UNFRAMED[-split:])
            assert under_test.sink.outcome is None
            under_test.end(how)
            assert (under_test.sink.kind, under_test.sink.payload) == (outcome, b"hello")
            assert under_test.keeper.kept == []
            assert under_test.attempt.at_boundary()


def test_bytes_behind_an_answer_end_the_connection_not_the_answer() -> None:
    """They would be taken for the next answer, which is another client's: a response must not be guessed to anyone."""
    for name, (data, *_) in ANSWERS.items():
        for behind in (b"\r\n", b"x", b"HTTP/1.1 200 OK\r\n\r\n"):
            under_test = asked(name)
            under_test.feed(data + behind)
            assert under_test.sink.outcome == "ended", name
            assert under_test.sink.payload == ANSWERS[name][2]
            assert under_test.keeper.kept == [], name
            assert under_test.transport.closed == "closed"


def test_bytes_on_an_idle_connection_end_it() -> None:
    under_test = asked("length")
    under_test.feed(ANSWERS["length"][0])
    assert under_test.connection.usable()
    calls = under_test.sink.calls
    under_test.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert under_test.transport.closed == "aborted"
    assert not under_test.connection.usable()
    under_test.end("eof")
    assert under_test.sink.calls == calls
    assert not under_test.connection.usable()


@pytest.mark.parametrize(
    "garbage",
    [
        b"NONSENSE\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\n\r\n",
        b"HTTP/1.1 600 Odd\r\n\r\n",
        b"HTTP/1.1 2000 Odd\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"y" * 70_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\nX: " + b"y" * 70_000,
    ],
    ids=lambda data: f"{data[:40]!r}, {len(data)}",
)
def test_what_is_no_answer_is_a_lost_attempt_and_ends_the_connection(garbage: bytes) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966), PRO-04: nothing ambiguous is guessed, nothing endless
    is waited for, an upgrade that nobody asked for is none; and it is the engine's fault on any connection."""
    for pieces in ((garbage,), [garbage[at : at + 7] for at in range(0, len(garbage), 7)]):
        under_test = Asked(used=True)
        under_test.feed(*pieces)
        assert isinstance(under_test.sink.outcome, Lost), garbage[:60]
        assert not under_test.sink.outcome.reused
        assert under_test.transport.closed == "aborted"
        under_test.end("eof")
        assert under_test.sink.calls == 1


@pytest.mark.parametrize("broken", [b"zz\r\n", b"5\r\nhelloXX", b"-1\r\n", b"0x5\r\n", b"5 \r\n", b"\r\n", b"f" * 2000])
def test_broken_chunks_are_a_cut_behind_what_was_good(broken: bytes) -> None:
    """STR-02: what came before the fault is passed on, however reads are split."""
    data = OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + broken
    good = b"hello!" + (b"hello" if broken.startswith(b"5\r") else b"")
    for at in range(len(data) + 1):
        under_test = Asked()
        under_test.feed(data[:at], data[at:])
        assert (under_test.sink.kind, under_test.sink.payload) == ("Cut", good)
        assert under_test.transport.closed == "aborted"
        assert under_test.attempt.at_boundary() == (not broken.startswith(b"5\r"))


def test_where_a_chunk_may_be_added_is_known_behind_a_cut() -> None:
    """router.md, Streams: one error event at a chunk boundary, nowhere else."""
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    for at in range(len(CHUNKS) + 1):
        under_test = Asked()
        under_test.feed(head + CHUNKS[:at])
        under_test.end("reset")
        assert isinstance(under_test.sink.outcome, Cut)
        # Read by its framing alone: what was passed on ends with a chunk's CRLF.
        whole = under_test.sink.raw in (b"", b"5\r\nhello\r\n", b"5\r\nhello\r\n1\r\n!\r\n")
        assert under_test.attempt.at_boundary() == whole, CHUNKS[:at]


def test_an_answer_before_the_body_is_written_is_the_answer() -> None:
    """SCA-02: an engine refuses a large body early; what it says comes through, and the rest is sent to nobody."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"
    under_test = asked("length")
    under_test.feed(ANSWERS["length"][0])
    under_test.connection.pause_writing()
    under_test.ask(outgoing_of(body=b"x" * 2**20))
    under_test.feed(refusal)
    assert (under_test.sink.outcome, under_test.sink.payload) == ("ended", b"big")
    assert under_test.transport.closed == "aborted"
    assert len(under_test.keeper.kept) == 1, "only after the first answer"
    written = len(under_test.transport.written)
    under_test.connection.resume_writing()
    assert len(under_test.transport.written) == written
    # The same where the transport holds the rest.
    under_test = Asked()
    under_test.transport.full = 17
    under_test.feed(refusal)
    assert (under_test.sink.outcome, under_test.transport.closed) == ("ended", "aborted")
    assert under_test.keeper.kept == []


def test_a_half_closing_engine_is_not_written_to_without_end() -> None:
    under_test = Asked()
    under_test.connection.pause_writing()
    under_test.transport.full = 2**20
    under_test.connection.eof_received()
    assert under_test.transport.closed == "aborted", "close() would wait until the engine has taken the rest"
    under_test.connection.connection_lost(None)
    assert isinstance(under_test.sink.outcome, Lost)


@pytest.mark.parametrize("when", ["at once", "head", "body", "end"])
@pytest.mark.parametrize("name", [name for name in ANSWERS if ANSWERS[name][2]])
def test_nothing_is_called_after_an_abort(name: str, when: str) -> None:
    """Also from within a callback, with the rest of the answer in the same read."""
    data = ANSWERS[name][0]
    for pieces in ((data,), [data[at : at + 1] for at in range(len(data))]):
        under_test = asked(name)
        sink, attempt = under_test.sink, under_test.attempt
        told: list[str] = []

        def ends(event: str, sink: Noted = sink, attempt: object = attempt, told: list[str] = told) -> None:
            before = getattr(sink, event)

            def noted(*arguments: object) -> None:
                before(*arguments)
                told.append(event)
                attempt.abort()  # type: ignore[attr-defined]

            setattr(sink, event, noted)

        if when == "at once":
            attempt.abort()
        else:
            ends({"head": "head_came", "body": "body_came", "end": "body_ended"}[when])
        under_test.feed(*pieces)
        under_test.end("reset")
        attempt.abort()
        attempt.pause()
        attempt.resume()
        assert len(told) == (when != "at once")
        assert sink.outcome == ("ended" if when == "end" else None)
        if when != "end":
            assert under_test.transport.closed == "aborted"
            assert under_test.keeper.kept == []


def test_an_abort_after_the_end_is_not_the_next_requests() -> None:
    under_test = asked("length")
    under_test.feed(ANSWERS["length"][0])
    first = under_test.attempt
    under_test.ask()
    first.abort()
    first.pause()
    assert (under_test.transport.closed, under_test.transport.reading) == (None, True)
    under_test.feed(ANSWERS["chunked"][0])
    assert under_test.sink.payload == b"hello!"
    assert len(under_test.keeper.kept) == 2


def test_pausing_stops_the_reading_and_the_next_request_starts_unpaused() -> None:
    under_test = asked("length")
    under_test.attempt.pause()
    under_test.attempt.pause()
    assert not under_test.transport.reading
    under_test.attempt.resume()
    assert under_test.transport.reading
    under_test.attempt.pause()
    under_test.feed(ANSWERS["length"][0])
    assert under_test.sink.outcome == "ended"
    assert under_test.transport.reading, "or the end of an idle connection is never seen"


def test_a_fault_of_the_sinks_own_still_ends_the_attempt() -> None:
    """The loop logs it and closes the connection; the request must not hang on it for ever."""
    under_test = asked("length")

    def faulty(*_: object) -> None:
        raise KeyError("a bug")

    under_test.sink.body_came = faulty  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        under_test.feed(ANSWERS["length"][0][:-1])
    under_test.connection.connection_lost(KeyError("a bug"))
    assert isinstance(under_test.sink.outcome, Cut)
