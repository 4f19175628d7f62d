"""The head of an engine's response: strict where framing hangs on it, tolerant where nothing does.

On the request path. A response that could be read in two ways is broken, not guessed: its connection is closed and the
engine is said to have failed. Must not know what is passed on to the client.
"""

from __future__ import annotations

from typing import Final

from headrace_router.http1 import lines as rules
from headrace_router.http1.lines import FROM_ENGINES, Line, Malformed
from headrace_router.http1.request_head import MAX_HEAD, MAX_LINES, read_length

_known_line: Final = FROM_ENGINES.__getitem__
_CONTROL: Final = bytes(set(range(32)) - {9}) + b"\x7f"


class BrokenHead(Exception):
    """What came is no response head that can be relied on."""


class ResponseHead:
    """Status line and header lines of a response.

    Attributes:
        length: Content-Length, None without one; of a bodiless response what it announces.
        until_close: the body ends with the connection. bodiless: no body follows, whatever the header lines say.
        keep_alive: the connection may be used again when the body has ended. marked: lines that any rule is about.
    """

    __slots__ = (
        "bodiless",
        "chunked",
        "keep_alive",
        "length",
        "lines",
        "marked",
        "minor",
        "reason",
        "status",
        "until_close",
    )

    def __init__(self, status: int, reason: bytes, minor: int, lines: list[Line], marked: list[Line]) -> None:
        self.status = status
        self.reason = reason
        self.minor = minor
        self.lines = lines
        self.marked = marked
        self.length: int | None = None
        self.chunked = False
        self.until_close = False
        self.bodiless = False
        self.keep_alive = minor == 1

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header; ``name`` in lower case."""
        for line in self.lines:
            if line.name == name:
                return line.value
        return None


class _StatusLines(dict[bytes, tuple[int, bytes, int]]):
    """Status lines seen before -> status, reason, minor version."""

    def __missing__(self, raw: bytes) -> tuple[int, bytes, int]:
        version, status, reason = raw[:9], raw[9:12], raw[12:]
        if version not in (b"HTTP/1.1 ", b"HTTP/1.0 "):
            raise BrokenHead("the status line begins with no version that is spoken here")
        if not status.isdigit() or not b"100" <= status <= b"599":
            raise BrokenHead("the status is no number from 100 to 599")
        if reason[:1] not in (b"", b" ") or len(reason.translate(None, _CONTROL)) != len(reason):
            raise BrokenHead("the reason phrase is malformed")
        found = (int(status), reason[1:], 1 if version == b"HTTP/1.1 " else 0)
        if len(raw) <= 128:
            if len(self) >= 256:
                self.clear()
            self[raw] = found
        return found


_KNOWN: Final = _StatusLines()


def parse_response_head(head: bytes, *, bodiless_request: bool) -> ResponseHead:
    """The whole head with its CRLFCRLF. ``bodiless_request``: it answers HEAD.

    Raises:
        BrokenHead: see there.
    """
    if len(head) > MAX_HEAD:
        raise BrokenHead(f"the head has more than {MAX_HEAD} bytes")
    parts = head.split(b"\r\n")
    if parts[-2:] != [b"", b""]:
        raise BrokenHead("the head is incomplete")
    if len(parts) > MAX_LINES + 3:
        raise BrokenHead(f"the head has more than {MAX_LINES} header lines")
    status, reason, minor = _KNOWN[parts[0]]
    try:
        lines = list(map(_known_line, parts[1:-2]))
    except Malformed as error:
        raise BrokenHead(str(error)) from None
    marked = [line for line in lines if line.rule]
    response = ResponseHead(status, reason, minor, lines, marked)
    response.bodiless = bodiless_request or status < 200 or status in (204, 304)
    _settle(response)
    return response


def _settle(response: ResponseHead) -> None:
    together = 0
    for line in response.marked:
        rule = line.rule
        if rule & (rules.LENGTH | rules.CODING):
            if together & rule & (rules.LENGTH | rules.CODING):
                raise BrokenHead("there is more than one Content-Length or Transfer-Encoding")
            _framing(response, line)
        elif rule & rules.CONNECTION:
            members = [member.strip(b" \t").lower() for member in line.value.split(b",")]
            if b"close" in members:
                response.keep_alive = False
            elif b"keep-alive" in members and not together & rules.CONNECTION:
                response.keep_alive = True
        together |= rule
    if response.chunked and response.length is not None:
        raise BrokenHead("Content-Length and Transfer-Encoding exclude each other")
    if response.bodiless:
        response.chunked = False
    elif response.length is None and not response.chunked:
        response.until_close = True
        response.keep_alive = False


def _framing(response: ResponseHead, line: Line) -> None:
    if line.rule & rules.LENGTH:
        response.length = read_length(line.value)
        if response.length is None:
            raise BrokenHead("Content-Length is no number")
    elif line.value.lower() == b"chunked" and response.minor == 1:
        response.chunked = True
    else:
        raise BrokenHead("Transfer-Encoding is something else than chunked in HTTP/1.1")
