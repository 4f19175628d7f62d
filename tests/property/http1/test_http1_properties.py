"""http1 for any bytes: no split matters, nothing but the named errors, and others read the same message."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_router.http1.request_head import RequestHead, parse_request_head
from support import http1_bytes as some
from support.examples import examples
from support.http1_checks import (
    check_chunks,
    check_request,
    check_requests,
    check_response,
    check_responses,
    fields,
    read_chunks,
    rendered,
)

ANY = st.binary(max_size=60)


@settings(max_examples=examples(60))
@given(st.one_of(some.REQUESTS, some.tampered(some.REQUESTS), ANY), some.CUTS)
def test_request_heads(raw: bytes, cuts: list[int]) -> None:
    """However it is cut, one reading; what is accepted, h11 and aiohttp read as the same message or refuse."""
    check_request(raw, cuts)


@settings(max_examples=examples(40))
@given(some.FIRST, st.lists(st.tuples(st.from_regex(r"[A-Za-z!#-]{1,8}", fullmatch=True), some.VALUES), max_size=6))
def test_a_sound_head_comes_back_as_it_was(first: bytes, pairs: list[tuple[str, bytes]]) -> None:
    names = [b"X-" + name.encode() for name, _ in pairs]
    lines = [b"%b: %b\r\n" % (name, value) for name, (_, value) in zip(names, pairs, strict=True)]
    raw = first + b"\r\nHost: r\r\nContent-Length: 7\r\n" + b"".join(lines) + b"\r\n"
    head = parse_request_head(raw)
    assert isinstance(head, RequestHead)
    assert rendered(head) == raw
    assert head.length == 7
    assert [(line.name, line.value) for line in head.lines[2:]] == [
        (name.lower(), value) for name, (_, value) in zip(names, pairs, strict=True)
    ]
    again = parse_request_head(rendered(head))
    assert isinstance(again, RequestHead)
    assert fields(again) == fields(head)


@settings(max_examples=examples(60))
@given(st.one_of(some.RESPONSES, some.tampered(some.RESPONSES), ANY), st.booleans())
def test_response_heads(raw: bytes, to_head: bool) -> None:
    check_response(raw, to_head=to_head)


@settings(max_examples=examples(60))
@given(some.sequences(some.REQUESTS, some.LINES))
def test_one_request_after_the_other(raws: list[bytes]) -> None:
    """What stood in the last head is not read again, and nobody can tell."""
    check_requests(raws)


@settings(max_examples=examples(60))
@given(some.sequences(some.RESPONSES, some.LINES), st.data())
def test_one_answer_after_the_other(raws: list[bytes], data: st.DataObject) -> None:
    to_heads = data.draw(st.lists(st.sampled_from([False, False, False, True]), min_size=1, max_size=5))
    check_responses([(raw, to_heads[at % len(to_heads)]) for at, raw in enumerate(raws)])


@settings(max_examples=examples(60))
@given(some.bodies(), some.CUTS, st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]))
def test_sound_chunked_bodies(body: tuple[bytes, bytes], cuts: list[int], behind: bytes) -> None:
    found = check_chunks(body[0] + behind, cuts)
    assert (found.payload, found.ended, found.rest) == (body[1], True, behind)
    assert read_chunks([found.raw]).payload == body[1]


@settings(max_examples=examples(60))
@given(st.one_of(some.tampered(some.bodies().map(lambda body: body[0])), ANY), some.CUTS)
def test_chunked_bodies(data: bytes, cuts: list[int]) -> None:
    """However it is cut, the same passes, the same is left over and the same is broken."""
    check_chunks(data, cuts)
