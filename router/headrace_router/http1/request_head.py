"""The head of a request, strictly (RFC 9112): whatever two parsers could read in two ways is refused.

On the request path, before anything else looks at a request; both ways through the listener stand on it. What is
refused closes the connection, because nobody can tell where the next message begins. Must not know paths, tables or
policies, and never raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headrace_router.http1.heads import NOTHING, Head, Still
from headrace_router.http1.lines import (
    AUTHORIZATION,
    BAD_HOST,
    BAD_LENGTH,
    CHUNKED,
    CLOSES,
    CODING,
    EXPECT,
    FROM_CLIENTS,
    HOST,
    KEEPS,
    KIND,
    LENGTH,
    MAX_DIGITS,
    UPGRADE,
    Line,
    Malformed,
    TooLong,
)
from headrace_router.http1.lines import MAX_FIELD as MAX_FIELD
from headrace_router.http1.recurring import Pattern

MAX_HEAD: Final = 64 * 1024
MAX_LINE: Final = 16 * 1024
MAX_LINES: Final = 100
# Around the target: CRLF, a method, two spaces, a version.
_MAX_REQUEST_LINE: Final = MAX_LINE + 64

_VERSION: Final = re.compile(rb"HTTP/[0-9]\.[0-9]")
_TARGET: Final = re.compile(rb"/[!-~]*|https?://[!-.0-~]+(?:/[!-~]*)?", re.IGNORECASE)
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_FRONT: Final = re.compile(rb"\r\Z|(?:\r\n)?(?:\Z|[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}(?: |\Z))")
# LF without CR before it, CR without LF behind it, and what stands in no head.
_STRAY: Final = re.compile(rb"(?<!\r)\n|\r[^\n]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Of two such lines a gateway may believe the first and an engine the last.
_ONCE: Final = HOST | LENGTH | CODING | KIND | AUTHORIZATION
_UNUSUAL: Final = BAD_HOST | BAD_LENGTH | CODING | EXPECT | UPGRADE | CLOSES
_MAX_KNOWN: Final = 256
_MAX_KNOWN_LINE: Final = 128


@dataclass(frozen=True, slots=True)
class BadHead:
    """Why a head is refused; answered, then the connection is closed."""

    status: int
    code: str
    message: str


class RequestHead(Head):
    """A head that can be read in one way only.

    Attributes:
        target: as it came. length: Content-Length, None without one. expects: waits for 100 (Continue).
        upgrade: offers another protocol.
    """

    __slots__ = ("chunked", "expects", "keep_alive", "length", "method", "minor", "target", "upgrade")

    def __init__(
        self, method: str, target: str, minor: int, before: Still, own: list[Line], behind: Still, rules: int
    ) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.before = before
        self.own = own
        self.behind = behind
        self.rules = rules
        self.length: int | None = None
        self.chunked = False
        self.keep_alive = minor == 1
        self.expects = False
        self.upgrade = False


class _Refused(Exception):
    def __init__(self, message: str, status: int = 400, code: str = "bad_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _RequestLines(dict[bytes, tuple[str, str, int]]):
    """Request lines seen before -> method, target, minor version. None with a query is kept: it may hold a key."""

    def __missing__(self, raw: bytes) -> tuple[str, str, int]:
        method, _, rest = raw.partition(b" ")
        if not _METHOD.fullmatch(method):
            raise _Refused("the request line begins with a method, a token of up to 32 characters")
        target, _, version = rest.rpartition(b" ")
        if len(target or rest) > MAX_LINE:
            raise _target_too_long()
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            if _VERSION.fullmatch(version):
                raise _Refused("only HTTP/1.1 and HTTP/1.0 are spoken here", 505, "version_not_supported")
            raise _Refused("the request line is method, target and HTTP/1.1 with one space between them")
        if not _TARGET.fullmatch(target):
            raise _Refused("the request target is no path or http URI of visible ASCII characters")
        found = (method.decode("ascii"), target.decode("ascii"), 1 if version == b"HTTP/1.1" else 0)
        if len(raw) <= _MAX_KNOWN_LINE and b"?" not in target and target.startswith(b"/"):
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[raw] = found
        return found


_KNOWN: Final = _RequestLines()
_known_request_line: Final = _KNOWN.__getitem__
_known_line: Final = FROM_CLIENTS.__getitem__


def find_end(buffer: bytes | bytearray, start: int) -> int:
    """Index behind the CRLFCRLF that ends a head, or -1. Bare LF never ends one.

    ``start``: where to look from; three bytes before what was looked at already.
    """
    found = buffer.find(b"\r\n\r\n", start)
    return found + 4 if found >= 0 else -1


def refuse_early(buffer: bytes | bytearray, start: int) -> BadHead | None:
    """What is wrong already with a head whose end hasn't come; None: it may still become one.

    For when find_end found nothing: a client that ends lines with LF alone, speaks TLS or sends without end would
    otherwise learn of it only from a time limit. ``start``: how much of the buffer was looked at already.
    """
    if len(buffer) >= MAX_HEAD:
        return _as_bad(_head_too_large())
    if len(buffer) > _MAX_REQUEST_LINE and buffer.find(b"\r\n", 2, _MAX_REQUEST_LINE) < 0:
        return _as_bad(_target_too_long())
    if not _FRONT.match(buffer) or _STRAY.search(buffer, max(0, start - 1)):
        return _as_bad(_Refused("what came is no head of an HTTP/1.1 request, whose lines end with CRLF"))
    return None


def parse_request_head(head: bytes) -> RequestHead | BadHead:
    """The whole head with its CRLFCRLF; one empty line before it is tolerated (RFC 9112 2.2)."""
    try:
        return _parse(head)
    except _Refused as refused:
        return _as_bad(refused)
    except TooLong as long:
        return BadHead(431, "header_too_large", str(long))
    except Malformed as malformed:
        return BadHead(400, "bad_request", str(malformed))


class RequestHeads:
    """The heads of one client's connection, one after the other; each reads as by parse_request_head."""

    __slots__ = ("_method", "_pattern", "_target")

    def __init__(self) -> None:
        self._pattern = Pattern(FROM_CLIENTS, _ONCE)
        self._method = ""
        self._target = ""

    def find_end(self, data: bytes) -> int:
        """As the function, from the beginning of what came."""
        return self._pattern.find_end(data)

    def parse(self, head: bytes) -> RequestHead | BadHead:
        """See parse_request_head."""
        found = self._like_the_last(head)
        if found is not None:
            return found
        alone = parse_request_head(head)
        if isinstance(alone, BadHead) or not alone.minor or alone.rules & _UNUSUAL:
            return alone
        if self._pattern.missed(head, alone.own):
            self._method, self._target = alone.method, alone.target
        return alone

    def _like_the_last(self, head: bytes) -> RequestHead | None:
        """None: it isn't, or something about it isn't usual."""
        pattern = self._pattern
        own = pattern.own(head)
        if own is None:
            return None
        rules = pattern.rules
        if rules & _UNUSUAL or not rules & HOST:
            pattern.forget()
            return None
        request = RequestHead(self._method, self._target, 1, pattern.before, own, pattern.behind, rules)
        request.length = pattern.length
        return request


def _parse(head: bytes) -> RequestHead:
    parts = head.split(b"\r\n")
    if not parts[0] or parts[-1] or parts[-2] or len(head) > MAX_HEAD or len(parts) > MAX_LINES + 3:
        parts = _limit(head, parts)
    method, target, minor = _known_request_line(parts[0])
    lines = list(map(_known_line, parts[1:-2]))
    together = 0
    length = b""
    for line in lines:
        rule = line.rule
        if not rule:
            continue
        if rule & together & _ONCE:
            raise _Refused(f"there is more than one {line.name.decode().title()} header")
        if rule & LENGTH:
            length = line.value
        together |= rule
    request = RequestHead(method, target, minor, NOTHING, lines, NOTHING, together)
    if together & _UNUSUAL or not together & HOST or not minor:
        _settle(request, together)
    if length:
        request.length = int(length)
    return request


def _limit(head: bytes, parts: list[bytes]) -> list[bytes]:
    if len(head) > MAX_HEAD:
        raise _head_too_large()
    if not head.endswith(b"\r\n\r\n"):
        raise _Refused("the head has no end")
    if not parts[0]:
        parts = parts[1:]
    if len(parts) > MAX_LINES + 3:
        raise _Refused(f"the head has more than {MAX_LINES} header lines", 431, "too_many_headers")
    return parts


def _settle(request: RequestHead, together: int) -> None:
    """What few requests have."""
    if not together & HOST and request.minor:
        raise _Refused("HTTP/1.1 wants a Host header; there is none")
    if together & BAD_HOST:
        raise _Refused("the Host header is no host name with or without a port")
    if together & BAD_LENGTH:
        raise _Refused(f"Content-Length is one number of up to {MAX_DIGITS} digits")
    if together & CODING:
        _coding(request, together)
    if together & EXPECT and request.minor:
        _expect(request)
    if together & CLOSES or not request.minor:
        request.keep_alive = not together & CLOSES and bool(together & KEEPS)
    request.upgrade = bool(together & UPGRADE)


def _coding(request: RequestHead, together: int) -> None:
    if together & LENGTH:
        raise _Refused("Content-Length and Transfer-Encoding exclude each other")
    if not request.minor:
        raise _Refused("HTTP/1.0 has no Transfer-Encoding")
    if not together & CHUNKED:
        value = request.get(b"transfer-encoding") or b""
        codings = [each.strip(b" \t") for each in value.lower().split(b",")]
        if codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
            raise _Refused("the last Transfer-Encoding is chunked, once")
        raise _Refused("no Transfer-Encoding but chunked is known here", 501, "coding_not_implemented")
    request.chunked = True


def _expect(request: RequestHead) -> None:
    if [value.lower() for value in request.all(b"expect")] != [b"100-continue"]:
        raise _Refused("the only expectation that can be met is 100-continue", 417, "expectation_failed")
    request.expects = True


def _head_too_large() -> _Refused:
    return _Refused(f"the head has more than {MAX_HEAD} bytes", 431, "header_too_large")


def _target_too_long() -> _Refused:
    return _Refused(f"the request target has more than {MAX_LINE} bytes", 414, "uri_too_long")


def _as_bad(refused: _Refused) -> BadHead:
    return BadHead(refused.status, refused.code, str(refused))
