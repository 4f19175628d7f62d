"""Header rules of both directions on lines: what ends at this hop, what is added.

On the request path. Everything hop-by-hop ends here (the fixed set and whatever ``Connection`` names, RFC 9110 7.6.1),
and every header by which a client could pose as a part of the system; the rest passes byte for byte, in its order. Must
not read a clock or the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from headrace_router.http1.heads import NOTHING, REQUEST_ID_IS, Head, forwarded, passing
from headrace_router.http1.lines import (
    CREDENTIAL,
    ENCODED,
    EVENT_STREAM,
    FORWARDED_FOR,
    GARBLED,
    KIND,
    NAMES,
    REQUEST_ID,
    STEERS,
    STOPS_BEFORE_CLIENT,
    STOPS_BEFORE_ENGINE,
    Line,
)

MAX_REQUEST_ID: Final = 128
# Proxies that a request may have come through; real chains have a handful.
MAX_HOPS: Final = 20
_ID_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/+=@"
_NOT_NAMED: Final = frozenset({b"close", b"keep-alive", b""})
_NONE: Final[frozenset[bytes]] = frozenset()
_CRLF: Final = b"\r\n"


def garbled(lines: Iterable[Line]) -> str | None:
    """The name of a header whose value is no UTF-8: engines and gateways would read it in different ways."""
    for line in lines:
        if line.rule & GARBLED:
            return line.name.decode("ascii")
    return None


def in_a_loop(lines: Iterable[Line]) -> bool:
    """Whether a request has come through so many proxies that it goes in circles: an engine's address is a router's."""
    hops = 0
    for line in lines:
        if line.rule & FORWARDED_FOR:
            hops += 1 + line.value.count(b",")
    return hops > MAX_HOPS


def request_id(lines: Iterable[Line], fresh: Callable[[], str]) -> str:
    """The client's own request id when it is harmless, else a ``fresh`` one."""
    for line in lines:
        if line.rule & REQUEST_ID:
            given = line.value
            if given and len(given) <= MAX_REQUEST_ID and not given.translate(None, _ID_BYTES):
                return given.decode("ascii")
            break
    return fresh()


def to_engine(
    lines: Sequence[Line],
    *,
    peer: str | None,
    request_id: str,
    keep: frozenset[bytes] = _NONE,
    drop_authorization: bool = False,
    rules: int | None = None,
) -> bytes:
    """Header lines an engine gets, joined: the client's, in their order, without what ends at this hop.

    ``X-Forwarded-For`` is the client's list with the peer's address appended. ``keep`` names internal headers that may
    pass (the priority header, for a router behind a router). ``drop_authorization``: the client's key is the router's
    own business. ``rules``: the head's, when they are known. Host, Content-Length and Connection belong to the upstream
    leg.
    """
    if rules is None:
        rules = 0
        for line in lines:
            rules |= line.rule
    stops = STOPS_BEFORE_ENGINE | CREDENTIAL if drop_authorization else STOPS_BEFORE_ENGINE
    named = _NONE
    if rules & NAMES:
        named = _named(lines)
        lines = [line for line in lines if line.name not in named]
    if rules & STEERS:
        either = stops | STEERS
        passed = [line.raw for line in lines if not line.rule & either or (line.name in keep and not line.rule & stops)]
    else:
        passed = [line.raw for line in lines if not line.rule & stops]
    forwarded = peer
    if rules & FORWARDED_FOR and b"x-forwarded-for" not in named:
        before = b", ".join([line.value for line in lines if line.rule & FORWARDED_FOR]).decode("latin-1")
        forwarded = f"{before}, {peer}" if peer else before
    if forwarded:
        passed.append(f"X-Forwarded-For: {forwarded}\r\nx-request-id: {request_id}\r\n".encode("latin-1", "replace"))
    else:
        passed.append(f"x-request-id: {request_id}\r\n".encode("latin-1", "replace"))
    return b"".join(passed)


def to_client(lines: Sequence[Line], *, extra: bytes = b"", sse: bool = False, rules: int | None = None) -> bytes:
    """An engine's header lines as the client gets them, joined: without what ends at this hop and Content-Length.

    ``extra``: lines of our own. ``sse``: adds what keeps anything in between from buffering or caching the stream.
    ``rules``: the head's, when they are known.
    """
    if rules is None or rules & NAMES:
        named = _named(lines)
        passed = [line.raw for line in lines if not line.rule & STOPS_BEFORE_CLIENT and line.name not in named]
    else:
        named = _NONE
        passed = [line.raw for line in lines if not line.rule & STOPS_BEFORE_CLIENT]
    if sse:
        names = {line.name for line in lines} - named
        if b"x-accel-buffering" not in names:
            passed.append(b"X-Accel-Buffering: no\r\n")
        if b"cache-control" not in names:
            passed.append(b"Cache-Control: no-cache\r\n")
    passed.append(extra)
    return b"".join(passed)


def head_to_engine(head: Head, peer: str | None, request_id: str, keep: frozenset[bytes], drops: bool) -> list[bytes]:
    """``to_engine`` of a head in pieces, by what its lines that stand still have said before. ``request_id``: ASCII."""
    rules = head.rules
    if rules & (NAMES | FORWARDED_FOR):
        lines = head.lines
        return [to_engine(lines, peer=peer, request_id=request_id, keep=keep, drop_authorization=drops, rules=rules)]
    before = head.before
    said = REQUEST_ID_IS
    if peer:
        said = forwarded(peer) if before is NOTHING else before.said(peer)
    return [
        before.to_engine(keep, drops),
        *passing(head.own, keep, drops),
        head.behind.to_engine(keep, drops),
        said,
        request_id.encode("ascii"),
        _CRLF,
    ]


def head_to_client(head: Head, said: bytes, request_id: str, *, sse: bool) -> list[bytes]:
    """``to_client`` of a head in pieces, with these lines of our own and the request id behind."""
    if sse or head.rules & NAMES:
        passed = [to_client(head.lines, sse=sse, rules=head.rules)]
    else:
        passed = [head.before.to_client()]
        for line in head.own:
            if not line.rule & STOPS_BEFORE_CLIENT:
                passed.append(line.raw)
        passed.append(head.behind.to_client())
    passed.append(said)
    passed.append(REQUEST_ID_IS)
    passed.append(request_id.encode("ascii"))
    passed.append(_CRLF)
    return passed


def is_event_stream(lines: Iterable[Line]) -> bool:
    """Whether the body is SSE that can be read and added to: text/event-stream without a content coding."""
    kind = None
    for line in lines:
        if line.rule & KIND:
            kind = kind or line
        elif line.rule & ENCODED:
            return False
    return kind is not None and bool(kind.rule & EVENT_STREAM)


def _named(lines: Iterable[Line]) -> frozenset[bytes]:
    """Headers that Connection names, in lower case."""
    named: set[bytes] = set()
    for line in lines:
        if line.rule & NAMES:
            named.update(member.strip(b" \t") for member in line.value.lower().split(b","))
    return frozenset(named - _NOT_NAMED)
