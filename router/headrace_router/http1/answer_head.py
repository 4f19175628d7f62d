"""The head of an answer, written from joined header lines.

On the request path. Must not know where the lines come from.
"""

from __future__ import annotations

from typing import Final

_CONTROL: Final = bytes(range(32)) + b"\x7f"


def answer_head(status: int, reason: bytes, lines: bytes, framing: bytes = b"") -> bytes:
    """Status line, joined header lines (each with its CRLF), the lines that frame the body, the empty line."""
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, reason.translate(None, _CONTROL), lines, framing)
