"""Chunked bodies: what passes as it is, what is left out, what is broken."""

from __future__ import annotations

import pytest

from headrace_router.http1.chunked import BrokenChunks, ChunkedReader
from support.hostile_http import CHUNKS, Hostile


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENT = b'data: {"choices":[]}\n\n'
LARGE = b"x" * 5_000


@pytest.mark.parametrize("hostile", CHUNKS, ids=lambda row: row.name)
@pytest.mark.parametrize("piece", [1, 7, 10**6])
def test_what_could_be_read_in_two_ways_is_broken(hostile: Hostile, piece: int) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966) and reports of others (support/hostile_http.py)."""
    reader = ChunkedReader()
    with pytest.raises(BrokenChunks, match=r"\w"):
        for at in range(0, len(hostile.raw), piece):
            reader.feed(hostile.raw[at : at + piece])
    assert not reader.ended


def test_whole_chunks_pass_as_they_came() -> None:
    """The usual reads: no copy of the framing."""
    reader = ChunkedReader()
    for payload in ([EVENT], [EVENT] * 3, [LARGE], [EVENT, LARGE, EVENT], [b"x"], [b"\r\n"], [b"0\r\n\r\n"]):
        data = b"".join(map(chunk, payload))
        raw, given = reader.feed(data)
        assert raw is data
        assert given == b"".join(payload)
        assert reader.at_boundary
    assert reader.feed(b"0\r\n\r\n") == (b"", b"")
    assert reader.ended
    assert reader.rest == b""


def test_the_middle_of_a_large_chunk_passes_without_any_copy() -> None:
    reader = ChunkedReader()
    assert reader.feed(b"3A98\r\n" + LARGE) == (b"3A98\r\n" + LARGE, LARGE)
    assert not reader.at_boundary
    raw, payload = reader.feed(LARGE)
    assert raw is payload is LARGE
    assert reader.feed(LARGE) == (LARGE, LARGE)
    assert not reader.at_boundary
    assert reader.feed(b"\r") == (b"", b"")
    assert not reader.at_boundary
    assert reader.feed(b"\n") == (b"\r\n", b"")
    assert reader.at_boundary


def test_chunks_and_the_end_in_one_read() -> None:
    reader = ChunkedReader()
    data = chunk(EVENT) + chunk(LARGE)
    assert reader.feed(data + b"0\r\nX-Trailer: a\r\n\r\nHTTP/1.1 200 OK") == (data, EVENT + LARGE)
    assert reader.ended
    assert reader.at_boundary
    assert reader.rest == b"HTTP/1.1 200 OK"
    assert reader.feed(b"\r\n") == (b"", b"")
    assert reader.rest == b"HTTP/1.1 200 OK\r\n"


def test_nothing_is_nothing() -> None:
    reader = ChunkedReader()
    assert reader.feed(b"") == (b"", b"")
    assert reader.at_boundary
    assert not reader.ended


def test_extensions_end_here() -> None:
    reader = ChunkedReader()
    assert reader.feed(b"2;a=b\r\nxy\r\n2 ; c\r\nxy\r\n2\r\nxy\r\n0;d\r\n\r\n") == (b"2\r\nxy\r\n" * 3, b"xyxyxy")
    assert reader.ended


def test_extensions_may_grow_with_the_body() -> None:
    reader = ChunkedReader()
    for _ in range(100):
        reader.feed(b"400;" + b"a" * 1_000 + b"\r\n" + b"x" * 1_024 + b"\r\n")
    assert reader.at_boundary


@pytest.mark.parametrize("size", [b"5", b"05", b"00000005"])
def test_sizes_pass_as_they_are_spelt(size: bytes) -> None:
    data = size + b"\r\nhello\r\n"
    assert ChunkedReader().feed(data) == (data, b"hello")


@pytest.mark.parametrize("last", [b"0", b"000", b"00000000"])
def test_the_last_chunk(last: bytes) -> None:
    reader = ChunkedReader()
    assert reader.feed(last + b"\r\n\r\n") == (b"", b"")
    assert reader.ended


def test_what_came_before_a_fault_in_the_same_read_is_not_lost() -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966): one event, then a broken size, in one read or two."""
    reader = ChunkedReader()
    with pytest.raises(BrokenChunks) as broken:
        reader.feed(chunk(EVENT) + b"zz\r\n")
    assert (broken.value.raw, broken.value.payload) == (chunk(EVENT), EVENT)
    reader = ChunkedReader()
    reader.feed(chunk(EVENT))
    with pytest.raises(BrokenChunks) as broken:
        reader.feed(b"zz\r\n")
    assert (broken.value.raw, broken.value.payload) == (b"", b"")


@pytest.mark.parametrize("begun", [b"5", b"5 ", b"5;", b"5;a=b", b"5\r", b"5;a\r", b"12345678"])
def test_an_unfinished_size_line_waits(begun: bytes) -> None:
    reader = ChunkedReader()
    assert reader.feed(chunk(EVENT) + begun) == (chunk(EVENT), EVENT)
    assert reader.at_boundary


@pytest.mark.parametrize("begun", [b"z", b" ", b"123456789", b"5x", b"5\rx", b"5;\x00", b"\r", b"5;a\n"])
def test_one_that_can_not_become_a_size_is_broken_at_once(begun: bytes) -> None:
    with pytest.raises(BrokenChunks):
        ChunkedReader().feed(begun)


@pytest.mark.parametrize("size", [1, 9, 10, 15, 16, 0xABC, 0xDEF, 4095, 4096, 19_999, 0x12345])
@pytest.mark.parametrize("spelt", ["%x", "%X", "%05x", "%08X"])
def test_sizes_in_any_spelling_alone_and_among_others(size: int, spelt: str) -> None:
    data = (spelt % size).encode() + b"\r\n" + b"x" * size + b"\r\n"
    for count in (1, 3):
        reader = ChunkedReader()
        assert reader.feed(data * count) == (data * count, b"x" * size * count)
        assert (ChunkedReader().whole(data * count) > 0) == (count == 1)
