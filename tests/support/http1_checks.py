"""What must hold for any bytes whatever: shared by the property tests and the fuzzing of http1.

What the router accepts, the others (http1_others.py) must read as the same message, or refuse.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from headrace_router.http1 import header_rules
from headrace_router.http1.chunked import BrokenChunks, ChunkedReader
from headrace_router.http1.lines import Line
from headrace_router.http1.request_head import (
    BadHead,
    RequestHead,
    RequestHeads,
    find_end,
    parse_request_head,
    refuse_early,
)
from headrace_router.http1.response_head import BrokenHead, ResponseHead, ResponseHeads, parse_response_head
from support.http1_others import (
    aiohttp_body,
    aiohttp_request,
    aiohttp_response,
    h11_body,
    h11_request,
    h11_response,
    reading,
)

_REQUEST = ("method", "target", "minor", "chunked", "expects", "upgrade")
_RESPONSE = ("status", "reason", "minor", "chunked", "until_close", "bodiless")
STATUSES = {400, 414, 417, 431, 501, 505}
HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"proxy-authorization",
    b"proxy-authenticate",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"http2-settings",
    b"content-length",
}


def pieces(raw: bytes, cuts: Iterable[int]) -> list[bytes]:
    """``raw`` cut at these places (modulo its length), in order."""
    places = sorted({cut % (len(raw) + 1) for cut in cuts} | {0, len(raw)})
    return [raw[start:end] for start, end in itertools.pairwise(places)]


# Requests


def listen(parts: Sequence[bytes]) -> tuple[RequestHead | BadHead | None, int]:
    """What a listener makes of the first head, and how many bytes it took; None: more must come."""
    buffer = bytearray()
    for part in parts:
        seen = len(buffer)
        buffer += part
        end = find_end(buffer, max(0, seen - 3))
        if end > 0:
            return parse_request_head(bytes(buffer[:end])), end
        refused = refuse_early(buffer, seen)
        if refused is not None:
            return refused, 0
    return None, 0


def check_request(raw: bytes, cuts: Iterable[int] = ()) -> RequestHead | None:
    """Everything that must hold of a request's bytes; returns the head if it is accepted."""
    found, end = listen([raw])
    cut, cut_end = listen(pieces(raw, cuts))
    assert type(cut) is type(found)
    if isinstance(found, BadHead):
        assert found.status in STATUSES
        assert found.message.isprintable()
        return None
    if found is None:
        return None
    assert isinstance(cut, RequestHead)
    assert (end, fields(found)) == (cut_end, fields(cut))
    check_accepted(found)
    ours = reading(
        (found.method.encode(), found.target.encode(), b"1.%d" % found.minor),
        ((line.name, line.value) for line in found.lines),
        chunked=found.chunked,
    )
    for other in (h11_request(raw[:end]), aiohttp_request(raw[:end])):
        assert other is None or other == ours
    check_forwarded(found)
    return found


def check_accepted(head: RequestHead) -> None:
    """The rules that nobody may be asked to interpret, once more in another way; and rendered, it reads the same."""
    names = [line.name for line in head.lines]
    assert names.count(b"host") in ((1,) if head.minor else (0, 1))
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert names.count(b"content-type") <= 1 and names.count(b"authorization") <= 1
    assert head.minor or not (head.chunked or head.expects)
    connection = named(head.lines)
    assert head.keep_alive == (b"close" not in connection and (head.minor == 1 or b"keep-alive" in connection))
    assert (head.length is not None) == (b"content-length" in names)
    assert head.chunked == (b"transfer-encoding" in names)
    assert head.marked == [line for line in head.lines if line.rule]
    for line in head.lines:
        assert line.raw.endswith(b"\r\n")
        assert not set(line.raw[:-2]) & {0, 10, 13}
        name, colon, value = line.raw[:-2].partition(b":")
        assert colon and name.lower() == line.name and value.strip(b" \t") == line.value
    again = parse_request_head(rendered(head))
    assert isinstance(again, RequestHead)
    assert fields(again) == fields(head)


def check_forwarded(head: RequestHead) -> None:
    """An engine sees one request, with the client's headers and nothing of this hop."""
    lines = header_rules.to_engine(head.lines, peer="10.0.0.9", request_id="id-1", rules=head.rules)
    assert lines == header_rules.to_engine(head.lines, peer="10.0.0.9", request_id="id-1")
    raw = b"POST /v1/x HTTP/1.1\r\nHost: e\r\n%bContent-Length: 0\r\n\r\n" % lines
    seen = h11_request(raw)
    if seen is not None:
        assert seen.first == (b"POST", b"/v1/x", b"1.1")
        passed = [name for name, _ in seen.headers[1:-1]]
        assert not HOP_BY_HOP & set(passed)
        assert not [name for name in passed if name.replace(b"_", b"-").startswith((b"x-headrace-", b"x-envoy-"))]
        assert passed[-2:] == [b"x-forwarded-for", b"x-request-id"]
        assert not (named(head.lines) - {b"close", b"keep-alive"}) & set(passed[:-2])
        assert set(passed) - {b"x-forwarded-for", b"x-request-id"} <= {line.name for line in head.lines}
    assert lines.count(b"\n") == lines.count(b"\r\n") == lines.count(b"\r")


def named(lines: Iterable[Line]) -> set[bytes]:
    """What Connection lists."""
    values = [line.value for line in lines if line.name == b"connection"]
    return {member.strip(b" \t").lower() for value in values for member in value.split(b",")}


def rendered(head: RequestHead) -> bytes:
    """The head as it could have come."""
    first = f"{head.method} {head.target} HTTP/1.{head.minor}\r\n".encode("ascii")
    return first + b"".join(line.raw for line in head.lines) + b"\r\n"


def fields(head: RequestHead | ResponseHead) -> dict[str, Any]:
    """All of a head, comparable."""
    names = _REQUEST if isinstance(head, RequestHead) else _RESPONSE
    found: dict[str, Any] = {name: getattr(head, name) for name in (*names, "rules", "count", "length", "keep_alive")}
    return found | {"lines": [_line(line) for line in head.lines], "marked": [_line(line) for line in head.marked]}


def _line(line: Line) -> tuple[bytes, bytes, bytes, int]:
    return line.raw, line.name, line.value, line.rule


# Responses


def check_response(raw: bytes, *, to_head: bool = False) -> ResponseHead | None:
    """Everything that must hold of a response head's bytes; returns the head if it is accepted."""
    end = find_end(raw, 0)
    try:
        head = parse_response_head(raw[:end] if end > 0 else raw, bodiless_request=to_head)
    except BrokenHead as error:
        assert str(error).isprintable()
        return None
    assert end > 0
    assert 100 <= head.status <= 599
    framings = [head.bodiless, head.chunked, head.until_close, head.length is not None and not head.bodiless]
    assert framings.count(True) == 1
    assert not (head.until_close and head.keep_alive)
    ours = reading(
        (b"%d" % head.status, b"1.%d" % head.minor),
        ((line.name, line.value) for line in head.lines),
        chunked=head.chunked,
    )
    for other in (h11_response(raw[:end], to_head=to_head), aiohttp_response(raw[:end])):
        if other is not None:
            assert (other.first, other.headers) == (ours.first, ours.headers)
            assert head.bodiless or other.chunked == ours.chunked
    for sse in (False, True):
        lines = header_rules.to_client(head.lines, extra=b"X-Own: 1\r\n", sse=sse, rules=head.rules)
        assert lines == header_rules.to_client(head.lines, extra=b"X-Own: 1\r\n", sse=sse)
        assert lines.count(b"\n") == lines.count(b"\r\n") == lines.count(b"\r")
        names = {line.partition(b":")[0].lower() for line in lines.split(b"\r\n")}
        assert not HOP_BY_HOP & names
        assert not {b"x-request-id", b"x-headrace-engine"} & names
        if not sse:
            assert not (named(head.lines) - {b"close", b"keep-alive", b"", b"x-own"}) & names
    return head


# One head after the other

KEEP = (frozenset[bytes](), frozenset({b"x-headrace-priority"}))
WANTED = (frozenset({b"x-headrace-priority", b"x-stainless-lang", b"x"}), frozenset({b"host"}))


def check_requests(raws: Iterable[bytes]) -> list[RequestHead]:
    """On one connection each reads as by itself, and leads to the same bytes for engines; returns the accepted."""
    heads = RequestHeads()
    accepted = []
    for raw in raws:
        for data in (raw, raw[:-2], raw + b"{}", raw[:-3] + raw, b"\r\n" + raw):
            assert heads.find_end(data) == find_end(data, 0)
        found, alone = heads.parse(raw), parse_request_head(raw)
        if isinstance(alone, BadHead):
            assert found == alone
            continue
        assert isinstance(found, RequestHead)
        assert fields(found) == fields(alone)
        assert found.lines == [*found.before.lines, *found.own, *found.behind.lines]
        for peer, keep, drops in itertools.product(("10.0.0.9", None), KEEP, (False, True)):
            plain = header_rules.to_engine(
                alone.lines, peer=peer, request_id="id-1", keep=keep, drop_authorization=drops
            )
            assert b"".join(header_rules.head_to_engine(found, peer, "id-1", keep, drops)) == plain
            assert b"".join(header_rules.head_to_engine(alone, peer, "id-1", keep, drops)) == plain
        for wanted in WANTED:
            lines = [_line(line) for line in alone.lines if line.name in wanted]
            assert [_line(line) for line in found.wanted(wanted)] == lines
        accepted.append(found)
    return accepted


def check_responses(raws: Iterable[tuple[bytes, bool]]) -> list[ResponseHead]:
    """The same of an engine's answers; with each whether it answers HEAD."""
    heads = ResponseHeads()
    accepted = []
    for raw, to_head in raws:
        for data in (raw, raw[:-2], raw + b"{}", raw[:-3] + raw):
            assert heads.find_end(data) == find_end(data, 0)
        try:
            alone = parse_response_head(raw, bodiless_request=to_head)
        except BrokenHead as error:
            with pytest.raises(BrokenHead) as told:
                heads.parse(raw, bodiless_request=to_head)
            assert str(told.value) == str(error)
            continue
        found = heads.parse(raw, bodiless_request=to_head)
        assert fields(found) == fields(alone)
        for sse in (False, True):
            plain = header_rules.to_client(alone.lines, extra=b"X-Own: 1\r\nx-request-id: id-1\r\n", sse=sse)
            assert b"".join(header_rules.head_to_client(found, b"X-Own: 1\r\n", "id-1", sse=sse)) == plain
            assert b"".join(header_rules.head_to_client(alone, b"X-Own: 1\r\n", "id-1", sse=sse)) == plain
        accepted.append(found)
    return accepted


# Chunks


@dataclass(frozen=True)
class Chunks:
    """What came of a chunked body."""

    raw: bytes
    payload: bytes
    broken: bool
    ended: bool
    rest: bytes


def read_chunks(parts: Iterable[bytes]) -> Chunks:
    """Read them as a connection does."""
    reader = ChunkedReader()
    raw = payload = b""
    for part in parts:
        try:
            given = reader.feed(part)
        except BrokenChunks as broken:
            return Chunks(raw + broken.raw, payload + broken.payload, True, False, b"")
        raw, payload = raw + given[0], payload + given[1]
    return Chunks(raw, payload, False, reader.ended, reader.rest)


def check_chunks(data: bytes, cuts: Iterable[int] = ()) -> Chunks:
    """Everything that must hold of a chunked body's bytes."""
    found = read_chunks([data])
    assert found == read_chunks(pieces(data, cuts))
    passed = read_chunks([found.raw])
    assert (passed.raw, passed.payload, passed.broken, passed.ended) == (found.raw, found.payload, False, False)
    assert data.endswith(found.rest)
    if found.ended:
        body = data[: len(data) - len(found.rest)]
        for other in (h11_body(body), aiohttp_body(body)):
            assert other is None or other == found.payload
        whole = read_chunks([found.raw + b"0\r\n\r\n"])
        assert (whole.payload, whole.ended) == (found.payload, True)
    return found
