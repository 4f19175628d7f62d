"""Microseconds of heads and chunks, with peers beside them, in one run.

`python hack/bench/bench_http1.py`. Peers: the same work written straightforwardly (pairs out of a head, a filter, a
join), aiohttp's parser (llhttp in C) and h11, which only parse. Least of many short repeats: little of what else the
machine does gets in. The lengths differ from head to head, as bodies do. Targets: a request's head parsed and made into
an engine's lines 6 us, an answer's into a client's 4 us, a chunk that came whole 1 us. Prints a table; judges nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import timeit
from collections.abc import Callable, Sequence

import h11
from aiohttp.http_parser import HttpRequestParser

from headrace_router.http1.chunked import ChunkedReader
from headrace_router.http1.header_rules import head_to_client, head_to_engine, to_client, to_engine
from headrace_router.http1.request_head import RequestHead, RequestHeads, parse_request_head
from headrace_router.http1.response_head import ResponseHeads, parse_response_head

# As the openai package for Python sends it.
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
    b"User-Agent: AsyncOpenAI/Python 3.57.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 3.57.0\r\n"
    b"X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"
    b"X-Stainless-Runtime-Version: 3.11.7\r\nAuthorization: Bearer sk-proj-abcdefghijklmnopqrstuvwxyz0123456789\r\n"
    b"X-Stainless-Async: async:asyncio\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n"
    b"Content-Length: %d\r\n\r\n"
)
GATEWAY = REQUEST[:-2] + b"X-Forwarded-For: 10.1.1.1, 10.2.2.2\r\nx-envoy-attempt-count: 1\r\n\r\n"
RESPONSE = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 02:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)
OURS = b"x-headrace-engine: a\r\nx-headrace-reason: weighted\r\nx-headrace-table: 7\r\nx-request-id: 0\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 150 + b'"}}]}\n\n'

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_ENDS = {b"host", b"content-length", b"connection", b"keep-alive", b"te", b"upgrade", b"transfer-encoding", b"expect"}


def least(action: Callable[[bytes], object], inputs: Sequence[bytes]) -> float:
    """Microseconds of one call."""
    turn = itertools.cycle(inputs)
    count, repeats = 128, 1_500
    with_loop = min(timeit.repeat(lambda: action(next(turn)), number=count, repeat=repeats))
    loop = min(timeit.repeat(lambda: next(turn), number=count, repeat=repeats))
    return (with_loop - loop) / count * 1e6


def straightforward(head: bytes) -> list[tuple[bytes, bytes]]:
    """Checked pairs of a head."""
    first, *lines = head[:-4].split(b"\r\n")
    pairs = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not (colon and _TOKEN.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError(line)
        pairs.append((name, value.strip(b" \t")))
    names = [name.lower() for name, _ in pairs]
    if len(first.split(b" ")) != 3 or names.count(b"host") != 1 or names.count(b"content-length") > 1:
        raise ValueError(first)
    return pairs


def straightforward_to_engine(head: bytes) -> bytes:
    """And the engine's lines."""
    kept = [pair for pair in straightforward(head) if pair[0].lower() not in _ENDS]
    return b"".join(
        b"%b: %b\r\n" % pair for pair in [*kept, (b"X-Forwarded-For", b"10.0.0.9"), (b"x-request-id", b"0")]
    )


def ours_to_engine(raw: bytes) -> bytes:
    """A client's head to an engine's lines."""
    head = parse_request_head(raw)
    assert isinstance(head, RequestHead)
    return to_engine(head.lines, peer="10.0.0.9", request_id="0", rules=head.rules)


def ours_to_client(raw: bytes) -> bytes:
    """An engine's head to a client's lines."""
    head = parse_response_head(raw, bodiless_request=False)
    return to_client(head.lines, extra=OURS, rules=head.rules)


def on_one_connection(to_engines: bool = False) -> Callable[[bytes], object]:
    """Requests' heads that come one after the other."""
    heads, keep = RequestHeads(), frozenset({b"x-headrace-priority"})

    def take(raw: bytes) -> object:
        head = heads.parse(raw)
        assert isinstance(head, RequestHead)
        return head_to_engine(head, "10.0.0.9", "0", keep, False) if to_engines else head

    return take


def from_one_engine(to_clients: bool = False) -> Callable[[bytes], object]:
    """Answers' heads that come one after the other."""
    heads = ResponseHeads()

    def take(raw: bytes) -> object:
        head = heads.parse(raw, bodiless_request=False)
        return head_to_client(head, OURS, "0", sse=False) if to_clients else head

    return take


def h11_parse(raw: bytes) -> object:
    """h11, a new connection for each head."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    return connection.next_event()


def aiohttp_parser() -> Callable[[bytes], object]:
    """One parser for all heads, as on a kept connection."""

    class Protocol:
        transport = None
        _reading_paused = False

    loop = asyncio.new_event_loop()
    loop.close()
    parser: HttpRequestParser = HttpRequestParser(Protocol(), loop, 2**16)  # type: ignore[arg-type]
    return parser.feed_data


def chunks(count: int) -> bytes:
    """So many events, a chunk each."""
    return b"".join(b"%x\r\n%b\r\n" % (len(EVENT), EVENT) for _ in range(count))


def main() -> None:
    """Print the table."""
    requests = [REQUEST % length for length in range(2_000, 2_064)]
    # Without a body, which aiohttp's parser would wait for.
    bodiless = [head.replace(b"POST", b"GET").replace(b"Content-Length", b"X-Other-Length") for head in requests]
    more = b"x-model: %d\r\nx-session-id: session-%08d\r\nContent-Length:"
    several = [head.replace(b"Content-Length:", more % (n % 2, n)) for n, head in enumerate(requests)]
    others = [head.replace(b"chat/completions", b"x/%d" % n) for n, head in enumerate(requests)]
    responses = [RESPONSE % length for length in range(500, 564)]
    reader = ChunkedReader()
    rows = [
        ("request head (17 lines): parsed", least(parse_request_head, requests)),
        ("  and made into an engine's lines", least(ours_to_engine, requests)),
        (
            "  the same behind a gateway (2 lines more)",
            least(ours_to_engine, [GATEWAY % n for n in range(2_000, 2_064)]),
        ),
        ("  one after the other on a connection: parsed", least(on_one_connection(), requests)),
        ("    and made into an engine's lines", least(on_one_connection(True), requests)),
        ("    three lines of it new each time", least(on_one_connection(True), several)),
        ("    all different, with a few lines in common", least(on_one_connection(True), others)),
        ("  straightforward: parsed", least(straightforward, requests)),
        ("  straightforward: and made into an engine's lines", least(straightforward_to_engine, requests)),
        ("  aiohttp (llhttp): parsed", least(aiohttp_parser(), bodiless)),
        ("  h11: parsed", least(h11_parse, requests)),
        (
            "response head (4 lines): parsed",
            least(lambda raw: parse_response_head(raw, bodiless_request=False), responses),
        ),
        ("  and made into a client's lines", least(ours_to_client, responses)),
        ("  one after the other from an engine: parsed", least(from_one_engine(), responses)),
        ("    and made into a client's lines", least(from_one_engine(True), responses)),
        ("chunk that came whole", least(reader.feed, [chunks(1)])),
        ("each of 4 in one read", least(reader.feed, [chunks(4)]) / 4),
        ("each of 16 in one read", least(reader.feed, [chunks(16)]) / 16),
    ]
    print(f"{'us, least of many':52} {'':>6}")
    for name, cost in rows:
        print(f"{name:52} {cost:6.2f}")


if __name__ == "__main__":
    main()
