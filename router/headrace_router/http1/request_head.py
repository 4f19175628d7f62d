"""The head of a request, strictly (RFC 9112): whatever two parsers could read in two ways is refused.

On the request path, before anything else looks at a request; both ways through the listener stand on it. What is
refused closes the connection, because nobody can tell where the next message begins. Must not know paths, tables or
policies, and never raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headrace_router.http1 import lines as rules
from headrace_router.http1.lines import FROM_CLIENTS, Line, Malformed, TooLarge

MAX_HEAD: Final = 64 * 1024
MAX_LINE: Final = 16 * 1024
MAX_FIELD: Final = rules.MAX_FIELD
MAX_LINES: Final = 100


@dataclass(frozen=True, slots=True)
class BadHead:
    """Why a head is refused; answered, then the connection is closed."""

    status: int
    code: str
    message: str


class RequestHead:
    """A head that can be read in one way only.

    Attributes:
        target: as it came. length: Content-Length, None without one. expects: waits for 100 (Continue).
        upgrade: offers another protocol. marked: those of ``lines`` that any rule is about (Line.rule is not 0).
        rules: the flags of all lines together.
    """

    __slots__ = (
        "chunked",
        "expects",
        "keep_alive",
        "length",
        "lines",
        "marked",
        "method",
        "minor",
        "rules",
        "target",
        "upgrade",
    )

    def __init__(self, method: str, target: str, minor: int, lines: list[Line], marked: list[Line]) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.lines = lines
        self.marked = marked
        self.rules = 0
        self.length: int | None = None
        self.chunked = False
        self.keep_alive = minor == 1
        self.expects = False
        self.upgrade = False

    def get(self, name: bytes) -> bytes | None:
        """The first value of a header; ``name`` in lower case."""
        for line in self.lines:
            if line.name == name:
                return line.value
        return None

    def all(self, name: bytes) -> list[bytes]:
        """All values of a header in their order."""
        return [line.value for line in self.lines if line.name == name]


_VERSION: Final = re.compile(rb"HTTP/[0-9]\.[0-9]")
_TARGET: Final = re.compile(rb"/[!-~]*|[Hh][Tt][Tt][Pp][Ss]?://[!-.0-~]+(?:/[!-~]*)?")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_MAX_DIGITS: Final = 15
_MAX_KNOWN: Final = 256
_MAX_KNOWN_LINE: Final = 128


class _Refused(Exception):
    def __init__(self, message: str, status: int = 400, code: str = "bad_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _RequestLines(dict[bytes, tuple[str, str, int]]):
    """Request lines seen before -> method, target, minor version. None with a query is kept: it may hold a key."""

    def __missing__(self, raw: bytes) -> tuple[str, str, int]:
        parts = raw.split(b" ")
        if len(parts) != 3:
            raise _Refused("the request line is method, target and version with one space between them")
        method, target, version = parts
        if not _METHOD.fullmatch(method):
            raise _Refused("the method is no token of up to 32 characters")
        if len(target) > MAX_LINE:
            raise _Refused(f"the request target has more than {MAX_LINE} bytes", 414, "uri_too_long")
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            if _VERSION.fullmatch(version):
                raise _Refused("only HTTP/1.1 and HTTP/1.0 are spoken here", 505, "version_not_supported")
            raise _Refused("the request line ends with HTTP/1.1 or HTTP/1.0")
        if not _TARGET.fullmatch(target):
            raise _Refused("the request target is no path or http URI of visible ASCII characters")
        found = (method.decode("ascii"), target.decode("ascii"), 1 if version == b"HTTP/1.1" else 0)
        if len(raw) <= _MAX_KNOWN_LINE and b"?" not in target and target.startswith(b"/"):
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[raw] = found
        return found


_KNOWN: Final = _RequestLines()
_known_line: Final = FROM_CLIENTS.__getitem__


def find_end(buffer: bytes | bytearray, start: int) -> int:
    """Index behind the CRLFCRLF that ends a head, or -1. Bare LF never ends one.

    ``start``: where to look from; three bytes before what was looked at already.
    """
    found = buffer.find(b"\r\n\r\n", start)
    return found + 4 if found >= 0 else -1


def parse_request_head(head: bytes) -> RequestHead | BadHead:
    """The whole head with its CRLFCRLF; one empty line before it is tolerated (RFC 9112 2.2)."""
    try:
        return _parse(head)
    except _Refused as refused:
        return BadHead(refused.status, refused.code, str(refused))
    except TooLarge as error:
        return BadHead(431, "header_too_large", str(error))
    except Malformed as error:
        return BadHead(400, "bad_request", str(error))


def _parse(head: bytes) -> RequestHead:
    if len(head) > MAX_HEAD:
        raise _Refused(f"the head has more than {MAX_HEAD} bytes", 431, "header_too_large")
    parts = head.split(b"\r\n")
    if not parts[0]:
        del parts[0]
    if parts[-2:] != [b"", b""]:
        raise _Refused("the head is incomplete")
    if len(parts) > MAX_LINES + 3:
        raise _Refused(f"the head has more than {MAX_LINES} header lines", 431, "too_many_headers")
    method, target, minor = _KNOWN[parts[0]]
    lines = list(map(_known_line, parts[1:-2]))
    marked = [line for line in lines if line.rule]
    request = RequestHead(method, target, minor, lines, marked)
    _settle(request)
    return request


def _settle(request: RequestHead) -> None:
    together = hosts = 0
    for line in request.marked:
        rule = line.rule
        if rule & rules.HOST:
            hosts += 1
            _host(line.value)
        elif rule & rules.LENGTH:
            _length(request, line.value, again=bool(together & rules.LENGTH))
        elif rule & rules.CODING:
            _coding(request, line.value, again=bool(together & rules.CODING))
        elif rule & rules.EXPECT:
            _expect(request, line.value)
        together |= rule
    request.rules = together
    if hosts > 1:
        raise _Refused("there is more than one Host header")
    if not hosts and request.minor == 1:
        raise _Refused("there is no Host header")
    if together & rules.CONNECTION:
        _connection(request)
    if request.chunked and request.length is not None:
        raise _Refused("Content-Length and Transfer-Encoding exclude each other")
    request.upgrade = bool(together & rules.UPGRADE)


def read_length(value: bytes) -> int | None:
    """A Content-Length; None: it is none."""
    return int(value) if value.isdigit() and len(value) <= _MAX_DIGITS else None


def _host(value: bytes) -> None:
    if not _HOST.fullmatch(value):
        raise _Refused("the Host header is no host name with a port")


def _length(request: RequestHead, value: bytes, *, again: bool) -> None:
    if again:
        raise _Refused("there is more than one Content-Length")
    request.length = read_length(value)
    if request.length is None:
        raise _Refused(f"Content-Length is a number of up to {_MAX_DIGITS} digits")


def _coding(request: RequestHead, value: bytes, *, again: bool) -> None:
    if again:
        raise _Refused("there is more than one Transfer-Encoding")
    if request.minor == 0:
        raise _Refused("HTTP/1.0 has no Transfer-Encoding")
    codings = [each.strip(b" \t") for each in value.lower().split(b",")]
    if codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
        raise _Refused("the last Transfer-Encoding is chunked, once")
    if len(codings) > 1:
        raise _Refused("no Transfer-Encoding but chunked is known here", 501, "coding_not_implemented")
    request.chunked = True


def _expect(request: RequestHead, value: bytes) -> None:
    if request.minor == 0:
        return
    if value.lower() != b"100-continue":
        raise _Refused("the only expectation that can be met is 100-continue", 417, "expectation_failed")
    request.expects = True


def _connection(request: RequestHead) -> None:
    members = [
        member.strip(b" \t").lower()
        for line in request.marked
        if line.rule & rules.CONNECTION
        for member in line.value.split(b",")
    ]
    request.keep_alive = b"close" not in members and (request.minor == 1 or b"keep-alive" in members)
