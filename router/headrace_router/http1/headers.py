"""Header rules of both directions, in one place: what ends at this hop, what is added, how a head is written.

On the request path. Works on raw ``(name, value)`` byte pairs so that case and order survive. Removes everything
hop-by-hop (the fixed set and whatever ``Connection`` names, RFC 9110 7.6.1) and every header by which a client could
pose as a part of the system. Must not read a clock or the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

RawHeaders = Sequence[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
# Said anew by the upstream leg, or settled at this hop.
_REQUEST_ENDS_HERE: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-request-id", b"x-forwarded-for"}
# Only the router itself may say these to a client.
_RESPONSE_ENDS_HERE: Final = HOP_BY_HOP | {
    b"content-length",
    b"x-headrace-engine",
    b"x-headrace-reason",
    b"x-headrace-table",
    b"x-headrace-attempts",
    b"x-request-id",
}
# Read as orders by gateways and endpoint pickers that may stand between router and engine; from outside never trusted.
_STEERING: Final = frozenset(
    {
        b"x-gateway-destination-endpoint",
        b"x-gateway-destination-endpoint-subset",
        b"target-pod",
        b"x-router-engine",
        b"x-request-attempt",
    }
)
_STEERING_PREFIXES: Final = (b"x-headrace-", b"x-envoy-")
_ID_BYTES: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/+=@")
MAX_REQUEST_ID: Final = 128
# Proxies that a request may have come through; real chains have a handful.
MAX_HOPS: Final = 20
_CONTROL: Final = bytes(range(32)) + b"\x7f"


def value_of(headers: RawHeaders, name: bytes) -> bytes | None:
    """The first value of a header; ``name`` in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


def garbled(headers: RawHeaders) -> str | None:
    """The name of a header that can't be passed on as it came: the upstream leg writes text as UTF-8."""
    for name, value in headers:
        if not value.isascii():
            try:
                value.decode()
            except UnicodeDecodeError:
                return name.decode("ascii", "replace")
    return None


def listed(headers: RawHeaders, name: bytes) -> frozenset[bytes]:
    """Members of a comma-separated header over all its lines, in lower case."""
    members: set[bytes] = set()
    for key, value in headers:
        if key.lower() == name:
            members.update(member.strip().lower() for member in value.split(b","))
    members.discard(b"")
    return frozenset(members)


def in_a_loop(headers: RawHeaders) -> bool:
    """Whether a request has come through so many proxies that it goes in circles: an engine's address is a router's."""
    hops = 0
    for key, value in headers:
        if key.lower() == b"x-forwarded-for":
            hops += 1 + value.count(b",")
    return hops > MAX_HOPS


def request_id(headers: RawHeaders, fresh: str) -> str:
    """The client's own request id when it is harmless, else ``fresh``."""
    given = value_of(headers, b"x-request-id")
    if given and len(given) <= MAX_REQUEST_ID and _ID_BYTES.issuperset(given):
        return given.decode("ascii")
    return fresh


def to_engine(
    headers: RawHeaders, *, peer: str | None, request_id: str, keep: frozenset[bytes] = frozenset()
) -> list[tuple[bytes, bytes]]:
    """Headers an engine gets: the client's, in their order, without what ends at this hop.

    ``X-Forwarded-For`` is the client's list with the peer's address appended. ``keep`` names internal headers that
    may pass (the priority header, for a router behind a router); Host and Content-Length belong to the upstream leg.
    """
    named = listed(headers, b"connection")
    forwarded: list[bytes] = []
    passed: list[tuple[bytes, bytes]] = []
    for key, value in headers:
        name = key.lower()
        if name == b"x-forwarded-for" and name not in named:
            forwarded.append(value)
        elif name not in _REQUEST_ENDS_HERE and name not in named and (name in keep or not _steers(name)):
            passed.append((key, value))
    if peer:
        forwarded.append(peer.encode("ascii", "replace"))
    if forwarded:
        passed.append((b"X-Forwarded-For", b", ".join(forwarded)))
    passed.append((b"x-request-id", request_id.encode("ascii")))
    return passed


def to_client(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """An engine's headers as the client gets them: without what ends at this hop and without Content-Length."""
    named = listed(headers, b"connection")
    return [pair for pair in headers if (name := pair[0].lower()) not in _RESPONSE_ENDS_HERE and name not in named]


def stream_hints(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """What an SSE answer needs so that nothing in between buffers or caches it."""
    hints = [] if value_of(headers, b"x-accel-buffering") else [(b"X-Accel-Buffering", b"no")]
    if value_of(headers, b"cache-control") is None:
        hints.append((b"Cache-Control", b"no-cache"))
    return hints


def said(name: str, value: str) -> tuple[bytes, bytes]:
    """A header of our own; control characters can't split the head."""
    return name.encode("ascii"), value.encode("utf-8").translate(None, _CONTROL)


def head(status: int, reason: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a response head."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, reason.translate(None, _CONTROL))]
    lines += [b"%b: %b\r\n" % pair for pair in headers]
    lines.append(b"\r\n")
    return b"".join(lines)


def is_event_stream(headers: RawHeaders) -> bool:
    """Whether the body is SSE that can be read and added to: text/event-stream without a content coding."""
    kind = value_of(headers, b"content-type") or b""
    coding = (value_of(headers, b"content-encoding") or b"identity").strip().lower()
    return kind.split(b";")[0].strip().lower() == b"text/event-stream" and coding == b"identity"


def _steers(name: bytes) -> bool:
    return name in _STEERING or name.startswith(_STEERING_PREFIXES)
