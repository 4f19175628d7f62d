"""Header lines as whole lines: validated once, then passed on as they came.

On the request path. A line that many clients send alike is parsed once and kept; what it means at this hop stands on it
as flags, so that later rules test a number instead of comparing names. Lines of names outside a closed list are never
kept: no credential, no cookie, nothing that tells one client from another. Must not decide what happens to a message.
"""

from __future__ import annotations

from typing import Final

# What is special about a line. 0: nothing, it passes both ways.
STOPS_BEFORE_ENGINE: Final = 1 << 0
STOPS_BEFORE_CLIENT: Final = 1 << 1
STEERS: Final = 1 << 2
LENGTH: Final = 1 << 3
CODING: Final = 1 << 4
HOST: Final = 1 << 5
CONNECTION: Final = 1 << 6
EXPECT: Final = 1 << 7
UPGRADE: Final = 1 << 8
FORWARDED_FOR: Final = 1 << 9
REQUEST_ID: Final = 1 << 10
CREDENTIAL: Final = 1 << 11
GARBLED: Final = 1 << 12

MAX_FIELD: Final = 32 * 1024

_HOP: Final = STOPS_BEFORE_ENGINE | STOPS_BEFORE_CLIENT
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
    # What a client may show as its right to be served.
    b"authorization": CREDENTIAL,
    b"x-api-key": CREDENTIAL,
    b"api-key": CREDENTIAL,
    # Read as orders by gateways and endpoint pickers between router and engine; from outside never trusted.
    b"x-gateway-destination-endpoint": STEERS,
    b"x-gateway-destination-endpoint-subset": STEERS,
    b"target-pod": STEERS,
    b"x-router-engine": STEERS,
    b"x-request-attempt": STEERS,
    # Only the router itself may say these to a client.
    b"x-headrace-engine": STEERS | STOPS_BEFORE_CLIENT,
    b"x-headrace-reason": STEERS | STOPS_BEFORE_CLIENT,
    b"x-headrace-table": STEERS | STOPS_BEFORE_CLIENT,
    b"x-headrace-attempts": STEERS | STOPS_BEFORE_CLIENT,
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
_MAX_KNOWN_LINE: Final = 512
_MAX_KNOWN_NAME: Final = 64
_MAX_KNOWN: Final = 1024
_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CONTROL: Final = bytes(set(range(32)) - {9}) + b"\x7f"
_ALL_CONTROL: Final = bytes(range(32)) + b"\x7f"


class Malformed(Exception):
    """A line that is no header line."""


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
    """Names as they are spelt -> lower case, rule, whether lines of this name are kept."""

    def __missing__(self, spelt: bytes) -> tuple[bytes, int, bool]:
        if not spelt or spelt.translate(None, _TOKEN):
            raise Malformed("a header name is a token, directly followed by a colon")
        name = spelt.lower()
        rule = _RULES.get(name, 0)
        if name.startswith(_STEERING_PREFIXES):
            rule |= STEERS
        found = (name, rule, name in _COMMON or name.startswith(_COMMON_PREFIXES))
        if len(spelt) <= _MAX_KNOWN_NAME:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[spelt] = found
        return found


class KnownLines(dict[bytes, Line]):
    """Lines that were seen before, without CRLF -> Line. Looking up an unknown one parses it.

    Bounded: when full it starts anew, so that a client that sends new lines without end costs the others one parse of
    each of their lines in a thousand of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._names = _Names()

    def __missing__(self, raw: bytes) -> Line:
        spelt, colon, value = raw.partition(b":")
        if not colon:
            raise Malformed("a header line has a colon")
        name, rule, common = self._names[spelt]
        value = value.strip(b" \t")
        try:
            printable = value.decode().isprintable()
        except UnicodeDecodeError:
            rule |= GARBLED
            printable = False
        if not printable and len(value.translate(None, _CONTROL)) != len(value):
            raise Malformed("a header value has a control character")
        if len(raw) > MAX_FIELD:
            raise TooLarge("a header line is too long")
        line = Line(raw + b"\r\n", name, value, rule)
        if common and len(raw) <= _MAX_KNOWN_LINE:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[raw] = line
        return line


class TooLarge(Malformed):
    """A line longer than MAX_FIELD."""


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
    """A header line of our own; control characters can't split the head."""
    spelt = name.encode("ascii")
    said = (value.encode("utf-8") if isinstance(value, str) else value).translate(None, _ALL_CONTROL)
    return Line(b"%b: %b\r\n" % (spelt, said), spelt.lower(), said, 0)
