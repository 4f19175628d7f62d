"""Header lines as whole lines: validated once, then passed on as they came.

On the request path. A line that many clients send alike is parsed once and kept; what it means at this hop stands on it
as flags, so that later rules test a number instead of comparing names and values. Lines of names outside a closed list
are never kept: no credential, no cookie, nothing that tells one client from another. Must not decide what happens to a
message.
"""

from __future__ import annotations

import re
from typing import Final

# What is special about a line. 0: nothing, it passes both ways.
STOPS_BEFORE_ENGINE: Final = 1 << 0
STOPS_BEFORE_CLIENT: Final = 1 << 1
STEERS: Final = 1 << 2  # an order to gateways, endpoint pickers or this router
CREDENTIAL: Final = 1 << 3  # a client's right to be served
REQUEST_ID: Final = 1 << 4
FORWARDED_FOR: Final = 1 << 5
GARBLED: Final = 1 << 6  # the value is no UTF-8
HOST: Final = 1 << 7
BAD_HOST: Final = 1 << 8
LENGTH: Final = 1 << 9  # Content-Length
BAD_LENGTH: Final = 1 << 10
CODING: Final = 1 << 11  # Transfer-Encoding
CHUNKED: Final = 1 << 12  # and it is exactly that
CONNECTION: Final = 1 << 13
CLOSES: Final = 1 << 14
KEEPS: Final = 1 << 15
NAMES: Final = 1 << 16  # Connection lists more than close and keep-alive
EXPECT: Final = 1 << 17
UPGRADE: Final = 1 << 18
KIND: Final = 1 << 19  # Content-Type
EVENT_STREAM: Final = 1 << 20  # and it is text/event-stream
JSON: Final = 1 << 21  # and it is application/json
ENCODED: Final = 1 << 22  # Content-Encoding that is not identity
AUTHORIZATION: Final = 1 << 23

MAX_FIELD: Final = 32 * 1024
# Digits of a Content-Length; ten thousand times what any body here can have.
MAX_DIGITS: Final = 15

_HOP: Final = STOPS_BEFORE_ENGINE | STOPS_BEFORE_CLIENT
_OURS: Final = STEERS | STOPS_BEFORE_CLIENT
_RULES: Final = {
    b"connection": _HOP | CONNECTION,
    b"keep-alive": _HOP,
    b"proxy-authenticate": _HOP,
    b"proxy-authorization": _HOP,
    b"proxy-connection": _HOP,
    b"te": _HOP,
    b"trailer": _HOP,
    b"transfer-encoding": _HOP | CODING,
    b"upgrade": _HOP | UPGRADE,
    b"http2-settings": _HOP,
    # Said anew by the upstream leg, or settled at this hop.
    b"host": STOPS_BEFORE_ENGINE | HOST,
    b"content-length": _HOP | LENGTH,
    b"expect": STOPS_BEFORE_ENGINE | EXPECT,
    b"x-request-id": _HOP | REQUEST_ID,
    b"x-forwarded-for": STOPS_BEFORE_ENGINE | FORWARDED_FOR,
    b"content-type": KIND,
    b"content-encoding": ENCODED,
    b"authorization": CREDENTIAL | AUTHORIZATION,
    b"x-api-key": CREDENTIAL,
    b"api-key": CREDENTIAL,
    # Read as orders by gateways and endpoint pickers between router and engine; from outside never trusted.
    b"x-gateway-destination-endpoint": STEERS,
    b"x-gateway-destination-endpoint-subset": STEERS,
    b"target-pod": STEERS,
    b"x-router-engine": STEERS,
    b"x-request-attempt": STEERS,
    # Only the router itself may say these to a client.
    b"x-headrace-engine": _OURS,
    b"x-headrace-reason": _OURS,
    b"x-headrace-table": _OURS,
    b"x-headrace-attempts": _OURS,
}
_STEERING_PREFIXES: Final = (b"x-headrace-", b"x-envoy-")
# Names whose lines many clients or engines send alike, and whose values are nobody's secret.
_COMMON: Final = frozenset(
    b"accept accept-charset accept-encoding accept-language accept-ranges access-control-allow-credentials "
    b"access-control-allow-headers access-control-allow-methods access-control-allow-origin "
    b"access-control-expose-headers anthropic-beta anthropic-version cache-control connection content-encoding "
    b"content-type date dnt expect host http2-settings keep-alive openai-beta openai-version pragma priority "
    b"sec-fetch-dest sec-fetch-mode sec-fetch-site server strict-transport-security te transfer-encoding upgrade "
    b"user-agent vary x-accel-buffering x-content-type-options x-forwarded-port x-forwarded-proto x-powered-by".split()
)
_COMMON_PREFIXES: Final = (b"x-stainless-",)
_MAX_KNOWN: Final = 1024
_MAX_KNOWN_LINE: Final = 512
_MAX_KNOWN_NAME: Final = 64
# One unknown line in so many is kept: what many send alike soon gets in all the same, what comes once hardly ever. A
# prime, so that heads with some lines that are always new don't shut out the others for ever.
_ADMITTED: Final = 7

_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
ALL_CONTROL: Final = bytes(range(32)) + b"\x7f"
_CONTROL: Final = ALL_CONTROL.replace(b"\t", b"")
_MEMBERS: Final = {b"close": CLOSES, b"keep-alive": KEEPS, b"": 0}
_KINDS: Final = {b"text/event-stream": EVENT_STREAM, b"application/json": JSON}
# Flags of names that depend on the value, too.
VALUE_COUNTS: Final = HOST | LENGTH | CODING | CONNECTION | KIND | ENCODED


class Malformed(Exception):
    """What no header line is."""


class TooLong(Malformed):
    """A line longer than MAX_FIELD."""


class Line:
    """One header line: ``raw`` as it came with its CRLF, ``name`` in lower case, ``value`` without space around."""

    __slots__ = ("name", "raw", "rule", "value")

    def __init__(self, raw: bytes, name: bytes, value: bytes, rule: int) -> None:
        self.raw = raw
        self.name = name
        self.value = value
        self.rule = rule

    def __repr__(self) -> str:
        """Without the value, which may be a secret."""
        return f"Line({self.name!r})"


class _Names(dict[bytes, tuple[bytes, int, bool]]):
    """Names as they are spelt -> lower case, rule, whether lines of this name may be kept. Bounded as KnownLines is."""

    def __init__(self) -> None:
        super().__init__()
        self._unknown = 0

    def __missing__(self, spelt: bytes) -> tuple[bytes, int, bool]:
        if not spelt or spelt.translate(None, _TOKEN):
            shown = spelt[:64].decode("ascii", "backslashreplace")
            raise Malformed(f"a header name is a token with a colon right behind it, not {shown!r}")
        name = spelt.lower()
        found = (name, rule_of(name), name in _COMMON or name.startswith(_COMMON_PREFIXES))
        self._unknown += 1
        if self._unknown % _ADMITTED == 0 and len(spelt) <= _MAX_KNOWN_NAME:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[spelt] = found
        return found


class KnownLines(dict[bytes, Line]):
    """Lines that were seen before, without CRLF -> Line. Looking up an unknown one parses it.

    Bounded: when full it starts anew. A client that sends new lines without end pays next to nothing above a plain
    parse, and costs the others a parse of each of their lines now and then in thousands of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names = _Names()
        self._unknown = 0

    def __missing__(self, raw: bytes) -> Line:
        spelt, colon, value = raw.partition(b":")
        if not colon:
            raise Malformed("a header line has a colon; this one has none")
        name, rule, common = self._names[spelt]
        value = value.strip(b" \t")
        if not value.isalnum():
            rule |= check_value(name, value)
        if len(raw) > MAX_FIELD:
            raise TooLong(f"the line of {_shown(name)} has more than {MAX_FIELD} bytes")
        if rule & VALUE_COUNTS:
            rule = _read(rule, value)
        line = Line(raw + b"\r\n", name, value, rule)
        if common:
            self._unknown += 1
            if self._unknown % _ADMITTED == 0 and len(raw) <= _MAX_KNOWN_LINE:
                if len(self) >= _MAX_KNOWN:
                    self.clear()
                self[raw] = line
        return line


# Apart, so that no client can push out what engines say.
FROM_CLIENTS: Final = KnownLines()
FROM_ENGINES: Final = KnownLines()


def line(raw: bytes) -> Line | None:
    """The header line without its CRLF; None: malformed."""
    try:
        return FROM_CLIENTS[raw]
    except Malformed:
        return None


def made(name: str, value: str | bytes) -> Line:
    """A header line of our own; control characters can't split the head. It passes whatever its name."""
    spelt = name.encode("ascii")
    said = (value.encode("utf-8") if isinstance(value, str) else value).translate(None, ALL_CONTROL)
    return Line(b"%b: %b\r\n" % (spelt, said), spelt.lower(), said, 0)


def rule_of(name: bytes) -> int:
    """An underscore counts as a hyphen for what stops here: behind CGI-like servers both are one name."""
    hyphened = name.replace(b"_", b"-")
    rule = _RULES.get(hyphened, 0)
    if hyphened.startswith(_STEERING_PREFIXES):
        rule |= STEERS
    return rule if hyphened == name else rule & (_HOP | STEERS | CREDENTIAL)


def check_value(name: bytes, value: bytes) -> int:
    """GARBLED if the value is no UTF-8, else 0."""
    flags = 0
    try:
        if value.decode().isprintable():
            return 0
    except UnicodeDecodeError:
        flags = GARBLED
    if len(value.translate(None, _CONTROL)) != len(value):
        raise Malformed(f"the value of {_shown(name)} has a control character")
    return flags


def _read(rule: int, value: bytes) -> int:
    """The flags when the value has had its say."""
    if rule & LENGTH:
        return rule if value.isdigit() and len(value) <= MAX_DIGITS else rule | BAD_LENGTH
    if rule & HOST:
        return rule if _HOST.fullmatch(value) else rule | BAD_HOST
    if rule & CONNECTION:
        for member in value.lower().split(b","):
            rule |= _MEMBERS.get(member.strip(b" \t"), NAMES)
        return rule
    if rule & KIND:
        return rule | _KINDS.get(value.partition(b";")[0].strip(b" \t").lower(), 0)
    if rule & CODING:
        return rule | CHUNKED if value.lower() == b"chunked" else rule
    return rule if value.lower() != b"identity" else rule & ~ENCODED


def _shown(name: bytes) -> str:
    return name[:64].decode("ascii")
