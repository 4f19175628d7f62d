"""Reading along in SSE and unary answers."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_router.telemetry.sse import MAX_LINE, StreamObserver
from headrace_router.telemetry.unary import MAX_UNARY, UnaryObserver

CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'


def observe(*chunks: bytes) -> StreamObserver:
    observer = StreamObserver()
    for chunk in chunks:
        observer.feed(chunk)
    observer.end()
    return observer


def test_chunk_edges_line_ends_and_comments_mean_nothing() -> None:
    """STR-05 (https://github.com/envoyproxy/ai-gateway/issues/2162): CRLF, no space after the colon, pieces."""
    observer = observe(
        b": ping\r\n\r\n",
        b'data:{"choices":[{"delta":{"content":"\xe5\x8c',
        b'\x97"}}]}\r\n\r\nda',
        b'ta: {"choices":[],"usage":{"prompt_to',
        b'kens":3,"completion_tokens":1}}\r\n\r\n',
        b"data: [DONE]\r\n\r\n",
    )
    assert (observer.usage.input_tokens, observer.usage.output_tokens, observer.content_events) == (3, 1, 1)


STREAM = (
    b": ping\r\n\r\n"
    + CONTENT
    + b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\r\r'
    + b'event: x\ndata: {"choices":\ndata: [{"text":"a"}]}\n\n'
    + b'data:{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\r\n\r\ndata: [DONE]\n\n'
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_into_chunks_is_read_alike(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    observer = observe(*(STREAM[start:end] for start, end in pairwise(edges)))
    assert (observer.content_events, observer.usage.input_tokens, observer.usage.output_tokens) == (2, 7, 2)


def test_the_first_token_is_the_first_event_with_content() -> None:
    observer = StreamObserver()
    assert not observer.feed(b": ping\n\n")
    assert not observer.feed(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
    assert not observer.feed(CONTENT[:-1])
    assert observer.feed(CONTENT[-1:])


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}', 1),
        (b'{"choices":[{"delta":{"reasoning_content":"hm"}}]}', 1),
        (b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}', 1),
        (b'{"type":"response.output_text.delta","delta":"a"}', 1),
        (b'{"type":"ping"}', 0),
        (b'{"choices":[]}', 0),
        (b'{"choices":null}', 0),
        (b"[1]", 0),
        (b"not json", 0),
        (b'{"choices":"x"}', 0),
        (b"[" * 100_000, 0),
        (b"\xff\xfe", 0),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_events_of_all_three_apis_and_none(event: bytes, counts: int) -> None:
    bounded = event[: MAX_LINE // 2]
    assert observe(b"data: " + bounded + b"\n\n").content_events == counts


@pytest.mark.parametrize("piece", [1000, 65_536, 10**6])
def test_a_very_long_event_counts_once_and_is_not_kept(piece: int) -> None:
    """STR-04 (https://github.com/aio-libs/aiohttp/issues/4453): no limit to a line, memory bounded."""
    stream = b'data: {"choices":[{"delta":{"content":"' + b"x" * 700_000 + b'"}}]}\n\n' + CONTENT
    observer = StreamObserver()
    for start in range(0, len(stream), piece):
        observer.feed(stream[start : start + piece])
        assert len(observer._tail) <= MAX_LINE
    observer.end()
    assert observer.content_events == 2


def test_usage_of_the_other_apis() -> None:
    messages = observe(
        b'data: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}\n\n',
        b'data: {"type":"message_delta","usage":{"output_tokens":9}}\n\n',
    )
    assert (messages.usage.input_tokens, messages.usage.output_tokens) == (5, 9)
    responses = observe(
        b'data: {"type":"response.completed","response":{"usage":{"input_tokens":4,"output_tokens":2}}}\n\n'
    )
    assert (responses.usage.input_tokens, responses.usage.output_tokens) == (4, 2)


def test_negative_usage_says_nothing_and_a_cut_stream_ends() -> None:
    observer = observe(b'data: {"usage":{"prompt_tokens":-1,"completion_tokens":-4}}\n\n', CONTENT[:-2])
    assert (observer.usage.input_tokens, observer.usage.output_tokens) == (None, None)
    assert observer.content_events == 1


def unary(body: bytes) -> tuple[int | None, int | None]:
    observer = UnaryObserver()
    for start in range(0, len(body), 4096):
        observer.feed(body[start : start + 4096])
    usage = observer.usage()
    return usage.input_tokens, usage.output_tokens


def test_unary_usage_small_large_and_broken() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert unary(json.dumps({"usage": usage, "choices": []}).encode()) == (3, 1)
    assert unary(json.dumps({"data": ["x" * (MAX_UNARY + 1)], "usage": usage}).encode()) == (3, 1)
    assert unary(b'{"usage": {"prompt_tokens": 3') == (None, None)
    assert unary(b"x" * (MAX_UNARY + 1)) == (None, None)
    assert unary(b"") == (None, None)
