"""An event of many lines costs as little memory as one of a long line."""

import tracemalloc

from headrace_router.telemetry.sse import MAX_LINE, StreamObserver

CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'


def test_an_event_without_end_is_not_collected() -> None:
    """STR-04 (https://github.com/aio-libs/aiohttp/issues/4453): memory is bounded, whatever the length of an event."""
    observer = StreamObserver()
    observer.feed(CONTENT)
    tracemalloc.start()
    try:
        for _ in range(200):
            observer.feed(b"data: x\n" * 10_000)
        assert tracemalloc.get_traced_memory()[0] < 4 * 2**20
    finally:
        tracemalloc.stop()
    # It is one event all the same, and the next one is read.
    observer.feed(b"\n" + CONTENT)
    assert observer.content_events == 3


def test_lines_up_to_the_bound_are_joined() -> None:
    observer = StreamObserver()
    space = b"data:" + b" " * (MAX_LINE // 4) + b"\n"
    observer.feed(b'data: {"choices":[],\n' + space * 3 + b'data: "usage":{"prompt_tokens":3}}\n\n')
    assert (observer.usage.input_tokens, observer.content_events) == (3, 0)
    observer.feed(b'data: {"choices":[],\n' + space * 4 + b'data: "usage":{"prompt_tokens":4}}\n\n')
    assert (observer.usage.input_tokens, observer.content_events) == (3, 1)
