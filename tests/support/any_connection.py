"""Connections as clients might make them, well-formed and not, and what an engine answers them, from one number.

Drawn from a generator of our own and not piece by piece from hypothesis, which takes longer for it than a router does.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from support.scripted_engine import Says

LAST = b"GET /v1/models HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'

_TARGETS = (b"/v1/chat/completions",) * 8 + (
    b"/v1/messages",
    b"/v1/embeddings?x=%28y",
    b"/v1/responses",
    b"/v1/rerank",
    b"http://h/v1/completions",
    b"/v1/x/../models",
    b"/v1/models",
    b"/",
)
_METHODS = (b"POST",) * 12 + (b"GET", b"HEAD", b"PUT", b"post")
_HEADERS = (
    b"X-A: a",
    b"x-b:b",
    b"X-A: \t again \t",
    b"X-Empty:",
    b"X-Text: J\xc3\xb6",
    b"Accept: */*",
    b"Accept-Encoding: gzip, br",
    b"Authorization: Bearer k",
    b"Cookie: a=1; b=2",
    b"Content-Type: application/json",
    b"Content-Type: text/plain",
    b"Connection: keep-alive",
    b"Connection: X-A, x-b",
    b"Connection: x-script",
    b"Keep-Alive: timeout=5",
    b"TE: trailers",
    b"Trailer: X-T",
    b"Via: 1.1 p",
    b"X-Forwarded-For: 1.2.3.4",
    b"X-Forwarded-For: 5.6.7.8, 9.9.9.9",
    b"X-Request-Id: mine-1",
    b"X-Request-Id: not harmless",
    b"X-Headrace-Engine: b",
    b"X-Headrace-Priority: batch",
    b"x-envoy-retries: 9",
    b"target-pod: x",
    b"Proxy-Authorization: Basic eDp5",
    b"X_Under: 1",
    b"x-stainless-retry-count: 1",
)
_RARE = (
    b"Expect: 100-continue",
    b"Connection: close",
    b"Upgrade: h2c",
    b"Upgrade: websocket",
    b"Content-Encoding: gzip",
    b"Content-Encoding: identity",
    b"X-Latin: \xe9",
    b"Expect: more",
    b"Host: second",
    b"X-F: " + b", ".join([b"1.1.1.1"] * 30),
    b"X-Forwarded-For: " + b", ".join([b"1.1.1.1"] * 30),
)
_BODIES = (
    b'{"model":"m"}',
    b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}',
    b'{ "stream" : true, "model":"m"}',
    b'{"input":"x","model":"m","store":false}',
)
_ODD_BODIES = (
    b'{"model":"none"}',
    b'{"model":"m","model":"m"}',
    b'{"model":"m"',
    b"[]",
    b"",
    b"\xff\xfe",
    b'{"model":"m","store":true}',
    b"GET / HTTP/1.1\r\nHost: r\r\n\r\n",
)
_CHANGES = (b"", b"\r", b"\n", b"\x00", b" ", b":", b"\xff", b"0", b"a", b"\t", b"\r\n", b",")
_STATUSES = (b"200 OK",) * 8 + (b"201 Created", b"400 Bad", b"204 No Content", b"500 Oops", b"307 Elsewhere")
_BACK = (
    b"X-Back: 1",
    b"Connection: X-Back",
    b"x-request-id: theirs",
    b"Content-Encoding: gzip",
    b"Cache-Control: no-store",
    b"Set-Cookie: a=1",
    b"Keep-Alive: timeout=9",
    b"x-headrace-engine: z",
)


@dataclass(frozen=True)
class AnyConnection:
    """What is sent, read by read; the last request closes. ``scripts``: what the engine answers, by number."""

    reads: tuple[bytes, ...]
    scripts: tuple[Says, ...]


def any_connection(seed: int) -> AnyConnection:
    """The connection of this number."""
    rng = Random(seed)
    count = rng.randint(1, 6)
    raw = b"".join(_request(rng, number) for number in range(count))
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(raw))
            raw = raw[:at] + rng.choice(_CHANGES) + raw[at + rng.randint(0, 1) :]
    return AnyConnection(tuple(_cut(rng, raw + LAST)), tuple(_answer(rng) for _ in range(count)))


def _request(rng: Random, number: int) -> bytes:
    body = rng.choice(_BODIES if rng.random() < 0.85 else _ODD_BODIES)
    if rng.random() < 0.1:
        body = b'{"model":"m","prompt":"' + b"x" * rng.randint(0, 6000) + b'"}'
    old = rng.random() < 0.08
    lines = [b"x-script: %d" % number, *rng.choices(_HEADERS, k=rng.randint(0, 6))]
    if rng.random() < 0.97:
        lines.append(b"Host: r")
    if rng.random() < 0.1:
        lines.append(rng.choice(_RARE))
    if rng.random() < 0.2 and not old:
        lines.append(b"Transfer-Encoding: chunked")
        body = _chunks(rng, body)
    else:
        lines.append(b"Content-Length: %d" % (len(body) + (rng.choice((1, -1)) if body and rng.random() < 0.02 else 0)))
    if old:
        lines.append(b"Connection: keep-alive")
    rng.shuffle(lines)
    version = b"HTTP/1.0" if old else b"HTTP/1.1"
    first = b"%b %b %b" % (rng.choice(_METHODS), rng.choice(_TARGETS), version)
    return (b"\r\n" if rng.random() < 0.05 else b"") + b"\r\n".join((first, *lines)) + b"\r\n\r\n" + body


def _chunks(rng: Random, body: bytes) -> bytes:
    """The body in chunks, with extensions and trailers now and then."""
    out = b""
    while body:
        size = rng.randint(1, len(body))
        out += b"%x%b\r\n%b\r\n" % (size, rng.choice((b"", b"", b";a=b")), body[:size])
        body = body[size:]
    return out + b"0\r\n" + rng.choice((b"", b"", b"X-T: 1\r\n")) + b"\r\n"


def _answer(rng: Random) -> Says:
    """An engine's answer; its statuses tell the selection nothing that the next request could meet."""
    status = rng.choice(_STATUSES)
    kind = rng.choice((b"application/json", b"text/event-stream", b"text/plain"))
    parts = [rng.choice((EVENT, b": ping\n\n", rng.randbytes(rng.randint(1, 40)))) for _ in range(rng.randint(0, 4))]
    lines = [b"HTTP/1.1 " + status, b"Content-Type: " + kind, *rng.sample(_BACK, rng.randint(0, 2))]
    body = b"".join(parts)
    framing = rng.choice(("length", "chunked", "chunked", "end"))
    if status.startswith(b"204"):
        body = b""
    elif framing == "length":
        lines.append(b"Content-Length: %d" % len(body))
    elif framing == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        # In one piece: how it comes decides how it is chunked.
        return Says((b"\r\n".join(lines) + b"\r\nConnection: close\r\n\r\n" + body,), close=True)
    close = rng.random() < 0.2
    if close:
        # Unannounced, it may or may not be seen before the connection is used again.
        lines.append(b"Connection: close")
    raw = b"\r\n".join(lines) + b"\r\n\r\n" + body
    if rng.random() < 0.15:
        # Not all (an unannounced close, see above) and not nothing (it matters whether the connection was used before).
        raw, close = raw[: rng.randint(1, len(raw) - 1)], True
    return Says(tuple(_cut(rng, raw)), close=close)


def _cut(rng: Random, raw: bytes) -> list[bytes]:
    """The bytes in a few pieces."""
    at = sorted(rng.randint(0, len(raw)) for _ in range(rng.randint(0, 3)))
    return [piece for begin, end in zip([0, *at], [*at, len(raw)], strict=True) if (piece := raw[begin:end])]
