"""The head of an engine's response: strict where framing hangs on it, tolerant where nothing does.

On the request path. A response that could be read in two ways is broken, not guessed: its connection is closed and the
engine is said to have failed. Must not know what is passed on to the client.
"""

from __future__ import annotations

from typing import Final

from headrace_router.http1.heads import NOTHING, Head, Still
from headrace_router.http1.lines import (
    ALL_CONTROL,
    BAD_LENGTH,
    CHUNKED,
    CLOSES,
    CODING,
    FROM_ENGINES,
    KEEPS,
    LENGTH,
    Line,
    Malformed,
)
from headrace_router.http1.recurring import Pattern
from headrace_router.http1.request_head import MAX_HEAD, MAX_LINES

_CONTROL: Final = ALL_CONTROL.replace(b"\t", b"")
_ONCE: Final = LENGTH | CODING
_FRAMING: Final = LENGTH | BAD_LENGTH | CODING | CHUNKED | CLOSES
_BY_CHUNKS: Final = CODING | CHUNKED
_VERSIONS: Final = {b"HTTP/1.1 ": 1, b"HTTP/1.0 ": 0}
_BODILESS: Final = frozenset({204, 304})
_MAX_KNOWN: Final = 256
_MAX_KNOWN_LINE: Final = 128


class BrokenHead(Exception):
    """What came is no response head that can be relied on."""


class ResponseHead(Head):
    """Status line and header lines of a response.

    Attributes:
        length: Content-Length, None without one; of a bodiless response what it announces.
        until_close: the body ends with the connection. bodiless: no body follows, whatever the header lines say.
        keep_alive: the connection may be used again when the body has ended.
    """

    __slots__ = ("bodiless", "chunked", "keep_alive", "length", "minor", "reason", "status", "until_close")

    def __init__(
        self, status: int, reason: bytes, minor: int, before: Still, own: list[Line], behind: Still, rules: int
    ) -> None:
        self.status = status
        self.reason = reason
        self.minor = minor
        self.before = before
        self.own = own
        self.behind = behind
        self.rules = rules
        self.length: int | None = None
        self.chunked = False
        self.until_close = False
        self.bodiless = False
        self.keep_alive = minor == 1


class _StatusLines(dict[bytes, tuple[int, bytes, int]]):
    """Status lines seen before -> status, reason, minor version."""

    def __missing__(self, raw: bytes) -> tuple[int, bytes, int]:
        minor, status, reason = _VERSIONS.get(raw[:9]), raw[9:12], raw[12:]
        if minor is None:
            raise BrokenHead("the status line begins with no version that is spoken here")
        if not (len(status) == 3 and status.isdigit() and b"100" <= status <= b"599"):
            raise BrokenHead("the status is no number from 100 to 599")
        # The space before an empty reason is often left out.
        if reason[:1] not in (b"", b" ") or len(reason.translate(None, _CONTROL)) != len(reason):
            raise BrokenHead("the reason phrase is malformed")
        found = (int(status), reason[1:], minor)
        if len(raw) <= _MAX_KNOWN_LINE:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[raw] = found
        return found


_KNOWN: Final = _StatusLines()
_known_status_line: Final = _KNOWN.__getitem__
_known_line: Final = FROM_ENGINES.__getitem__


def parse_response_head(head: bytes, *, bodiless_request: bool) -> ResponseHead:
    """The whole head with its CRLFCRLF. ``bodiless_request``: it answers HEAD.

    Raises:
        BrokenHead: see there.
    """
    parts = head.split(b"\r\n")
    if not 3 <= len(parts) <= MAX_LINES + 3 or parts[-1] or parts[-2] or len(head) > MAX_HEAD:
        raise BrokenHead(f"the head has no end, or more than {MAX_HEAD} bytes or {MAX_LINES} header lines")
    status, reason, minor = _known_status_line(parts[0])
    try:
        lines = list(map(_known_line, parts[1:-2]))
    except Malformed as error:
        raise BrokenHead(str(error)) from None
    together = 0
    length = b""
    for line in lines:
        rule = line.rule
        if not rule:
            continue
        if rule & together & _ONCE:
            raise BrokenHead("there is more than one Content-Length or Transfer-Encoding")
        if rule & LENGTH:
            length = line.value
        together |= rule
    response = ResponseHead(status, reason, minor, NOTHING, lines, NOTHING, together)
    _settle(response, together, length, bodiless_request or status < 200 or status in _BODILESS)
    return response


class ResponseHeads:
    """The heads of one engine's answers, one after the other; each reads as by parse_response_head."""

    __slots__ = ("_pattern", "_reason", "_status")

    def __init__(self) -> None:
        self._pattern = Pattern(FROM_ENGINES, _ONCE)
        self._status = 0
        self._reason = b""

    def find_end(self, data: bytes) -> int:
        """As request_head.find_end, from the beginning of what came."""
        return self._pattern.find_end(data)

    def parse(self, head: bytes, *, bodiless_request: bool) -> ResponseHead:
        """See parse_response_head."""
        if not bodiless_request:
            found = self._like_the_last(head)
            if found is not None:
                return found
        alone = parse_response_head(head, bodiless_request=bodiless_request)
        if alone.minor and not alone.bodiless and self._pattern.missed(head, alone.own):
            self._status, self._reason = alone.status, alone.reason
        return alone

    def _like_the_last(self, head: bytes) -> ResponseHead | None:
        """None: it isn't, or something about it isn't usual."""
        pattern = self._pattern
        own = pattern.own(head)
        if own is None:
            return None
        rules = pattern.rules
        framing = rules & _FRAMING
        if framing != LENGTH and framing != _BY_CHUNKS:
            pattern.forget()
            return None
        response = ResponseHead(self._status, self._reason, 1, pattern.before, own, pattern.behind, rules)
        if framing == LENGTH:
            response.length = pattern.length
        else:
            response.chunked = True
        return response


def _settle(response: ResponseHead, together: int, length: bytes, bodiless: bool) -> None:
    if together & (CLOSES | KEEPS):
        response.keep_alive = not together & CLOSES
    if together & LENGTH:
        if together & (BAD_LENGTH | CODING):
            raise BrokenHead("Content-Length is no number, or stands beside Transfer-Encoding")
        response.length = int(length)
    elif together & CODING:
        if not (together & CHUNKED and response.minor):
            raise BrokenHead("Transfer-Encoding is something else than chunked in HTTP/1.1")
        response.chunked = not bodiless
    elif not bodiless:
        response.until_close = True
        response.keep_alive = False
    response.bodiless = bodiless
