"""Bytes for http1's parsers: sound messages, and sound ones that somebody has tampered with."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from support import hostile_http

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"

NAMES = st.sampled_from(
    [
        b"Host",
        b"Content-Length",
        b"Transfer-Encoding",
        b"Connection",
        b"Expect",
        b"Upgrade",
        b"TE",
        b"Trailer",
        b"Keep-Alive",
        b"Proxy-Authorization",
        b"Authorization",
        b"Content-Type",
        b"Content-Encoding",
        b"X-Forwarded-For",
        b"X-Request-Id",
        b"x-headrace-priority",
        b"X_Headrace_Priority",
        b"x-envoy-x",
        b"X-Stainless-Lang",
        b"Accept",
        b"Content_Length",
        b"X",
    ]
)
SPELT = st.one_of(NAMES, NAMES.map(bytes.upper), NAMES.map(bytes.lower))
VALUES = st.one_of(
    st.sampled_from(
        [
            b"",
            b"0",
            b"5",
            b"chunked",
            b"Chunked",
            b"close",
            b"keep-alive",
            b"Keep-Alive, X",
            b"upgrade, content-length",
            b"x, accept, X-Stainless-Lang",
            b"100-continue",
            b"text/event-stream",
            b"identity",
            b"a, b",
            b"10.0.0.1",
            b"[::1]:80",
        ]
    ),
    st.text(alphabet=st.characters(min_codepoint=32, exclude_categories=["Cc", "Cs"]), max_size=12).map(
        lambda text: text.encode().strip()
    ),
)
SPACES = st.sampled_from([b" ", b"", b"\t", b"  "])
LINES = st.builds(lambda *parts: b"".join(parts), SPELT, st.just(b":"), SPACES, VALUES, st.sampled_from([b"", b" "]))
FIRST = st.sampled_from(
    [
        b"POST /v1/chat/completions HTTP/1.1",
        b"POST /v1/files/a%2Fb?sig=%28x%29&q=a+b HTTP/1.1",
        b"GET http://evil.example/v1/models HTTP/1.1",
        b"GET /v1/models HTTP/1.0",
        b"HEAD / HTTP/1.1",
        b"PUT //x HTTP/1.1",
    ]
)
STATUS = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.0 404 Not Found", b"HTTP/1.1 100 Continue", b"HTTP/1.1 204 X"]
)


def _head(first: bytes, lines: list[bytes]) -> bytes:
    return b"\r\n".join([first, *lines]) + b"\r\n\r\n"


REQUESTS = st.builds(_head, FIRST, st.lists(LINES, max_size=6).map(lambda lines: [b"Host: r", *lines]))
RESPONSES = st.builds(_head, STATUS, st.lists(LINES, max_size=6))


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A sound chunked body and its payload."""
    body = payload = b""
    for _ in range(draw(st.integers(0, 6))):
        data = draw(
            st.one_of(st.binary(min_size=1, max_size=20), st.sampled_from([b"x" * 3_000, b"\r\n", b"0\r\n\r\n"]))
        )
        size = draw(st.sampled_from([b"%x", b"%X", b"%04x"])) % len(data)
        extension = draw(st.sampled_from([b"", b"", b"", b";a=b", b' ;a="b"', b";"]))
        body += size + extension + b"\r\n" + data + b"\r\n"
        payload += data
    trailers = draw(st.sampled_from([b"", b"", b"X-T: a\r\n", b"A: b\r\nC: d\r\n"]))
    return body + draw(st.sampled_from([b"0", b"000", b"0;x"])) + b"\r\n" + trailers + b"\r\n", payload


# What parsers disagree about.
FRAGMENTS = st.one_of(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"\r\n\r\n",
            b" ",
            b"\t",
            b":",
            b",",
            b";",
            b"\x00",
            b"\x0b",
            b"\x7f",
            b"\x85",
            b"\xa0",
            b"\xff",
            b"0",
            b"+",
            b"-",
            b"0x",
            b"_",
            b"chunked",
            b"identity",
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Host: x\r\n",
            b"Connection: close\r\n",
            b"0\r\n\r\n",
            b"5\r\nhello\r\n",
            b";a=b",
            b"ffffffff",
            b"\xc3\xa4",
        ]
    ),
    st.binary(min_size=1, max_size=3),
)
_PLACES = st.integers(0, 2**16)


@st.composite
def tampered(draw: st.DrawFn, seeds: st.SearchStrategy[bytes]) -> bytes:
    """A seed with up to four places put in, taken out, written over, doubled, or joined with another seed."""
    data = draw(seeds)
    for kind in draw(st.lists(st.sampled_from("irodj"), max_size=4)):
        place = draw(_PLACES) % (len(data) + 1)
        if kind == "i":
            data = data[:place] + draw(FRAGMENTS) + data[place:]
        elif kind == "r":
            data = data[:place] + data[place + draw(st.integers(1, 8)) :]
        elif kind == "o":
            fragment = draw(FRAGMENTS)
            data = data[:place] + fragment + data[place + len(fragment) :]
        elif kind == "d":
            size = draw(st.integers(1, 40))
            data = data[: place + size] + data[place:]
        else:
            other = draw(seeds)
            data = data[:place] + other[draw(_PLACES) % (len(other) + 1) :]
    return data


@st.composite
def sequences(draw: st.DrawFn, seeds: st.SearchStrategy[bytes], lines: st.SearchStrategy[bytes]) -> list[bytes]:
    """Heads one after the other: each is the last one with a line or some bytes changed, or a new one; some come often,
    with a line that is new each time, or not."""
    head = draw(seeds)
    found = [head]
    for kind in draw(st.lists(st.sampled_from("cciirmtnf"), max_size=12)):
        if kind == "n":
            head = draw(seeds)
        elif kind == "t":
            head = draw(tampered(st.just(head)))
        else:
            first, *rest = head.split(b"\r\n")[:-2] or [b""]
            place = draw(_PLACES) % (len(rest) + 1)
            if kind == "f":
                first = draw(FIRST if first[-8:-1] == b"HTTP/1." else STATUS)
            elif kind == "i":
                rest.insert(place, draw(lines))
            elif kind == "m" and rest:
                rest.insert(place, rest.pop(draw(_PLACES) % len(rest)))
            elif rest:
                rest[place % len(rest) : place % len(rest) + 1] = [draw(lines)] if kind == "c" else []
            head = _head(first, rest)
        found.append(head)
        for number in range(draw(st.sampled_from([0, 0, 1, 2, 5, 70]))):
            counted = b"X-Id: %d\r\n" % number if draw(st.booleans()) else b""
            found.append(head[:-2] + counted + head[-2:])
    return found


CUTS = st.lists(_PLACES, max_size=8)


def kept(folder: str) -> st.SearchStrategy[bytes]:
    """The kept corpus: real messages, rows of the tables, and what a fuzzer found worth keeping."""
    rows = {
        "request": [row.raw for row in hostile_http.HEADS + hostile_http.PATHS],
        "response": [],
        "chunks": [row.raw for row in hostile_http.CHUNKS],
    }[folder]
    files = [path.read_bytes() for path in sorted((CORPUS / folder).iterdir())]
    return st.sampled_from([row for row in files + rows if len(row) <= 4_096])
