"""Chunked bodies while they arrive: checked, taken out of their framing, and passed on in it.

On the request path, for each read. Framing that may go on as it is comes back without a copy of its own; extensions and
trailers end here (RFC 9112 7.1.1, 7.1.2). Nothing is held back but an unfinished size line. Must not guess: a size that
two parsers could read in two ways is broken.
"""

from __future__ import annotations

import re
from typing import Final

from headrace_router.http1.lines import line

# Bytes of one size line, of all extensions of a body and of its trailers.
MAX_SIZE_LINE: Final = 1024
MAX_EXTENSIONS: Final = 16 * 1024
MAX_TRAILERS: Final = 16 * 1024

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})([ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")


class BrokenChunks(Exception):
    """The framing can't be trusted. ``raw`` and ``payload``: what came before the fault in the same read."""

    def __init__(self, message: str, raw: bytes = b"", payload: bytes = b"") -> None:
        super().__init__(message)
        self.raw = raw
        self.payload = payload


class ChunkedReader:
    """Reads one chunked body.

    Attributes:
        ended: the last chunk and its trailers have come. rest: the bytes behind them.
        at_boundary: what was given out as raw ends at a chunk's end.
    """

    __slots__ = ("_extensions", "_held", "_left", "_trailers", "ended", "rest")

    def __init__(self) -> None:
        self._held = b""
        self._left = 0  # of the chunk under way, with its CRLF
        self._extensions = 0
        self._trailers = -1  # bytes so far; -1: not there yet
        self.ended = False
        self.rest = b""

    @property
    def at_boundary(self) -> bool:
        """See the class."""
        return not self._left

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take in a read.

        Returns:
            (raw, payload): chunks in their framing, without extensions, trailers and the last chunk; the same without
            framing.

        Raises:
            BrokenChunks: see there.
        """
        raw: list[bytes] = []
        payload: list[bytes] = []
        try:
            self._feed(self._held + data, raw, payload)
        except BrokenChunks as broken:
            broken.raw, broken.payload = b"".join(raw), b"".join(payload)
            raise
        return b"".join(raw), b"".join(payload)

    def _feed(self, data: bytes, raw: list[bytes], payload: list[bytes]) -> None:
        at = 0
        self._held = b""
        while at < len(data):
            if self.ended:
                self.rest = data[at:]
                return
            if self._trailers >= 0:
                after = self._trailer(data, at)
            elif self._left:
                after = self._data(data, at, raw, payload)
            else:
                after = self._size(data, at, raw)
            if after < 0:
                self._held = data[at:]
                return
            at = after

    def _size(self, data: bytes, at: int, raw: list[bytes]) -> int:
        end = data.find(b"\r\n", at, at + MAX_SIZE_LINE)
        if end < 0:
            if len(data) - at >= MAX_SIZE_LINE:
                raise BrokenChunks("a chunk's size line is too long")
            return -1
        found = _SIZE.fullmatch(data, at, end)
        if found is None:
            raise BrokenChunks("a chunk's size is malformed")
        self._extensions += end - found.end(1)
        if self._extensions > MAX_EXTENSIONS:
            raise BrokenChunks("the chunk extensions are too long")
        size = int(found[1], 16)
        if size:
            self._left = size + 2
            raw.append(found[1] + b"\r\n")
        else:
            self._trailers = 0
        return end + 2

    def _data(self, data: bytes, at: int, raw: list[bytes], payload: list[bytes]) -> int:
        size = self._left - 2
        if size:
            piece = data[at : at + size]
            raw.append(piece)
            payload.append(piece)
            self._left -= len(piece)
            return at + len(piece)
        after = data[at : at + 2]
        if not b"\r\n".startswith(after):
            raise BrokenChunks("a chunk is not followed by CRLF")
        if len(after) < 2:
            return -1
        raw.append(after)
        self._left = 0
        return at + 2

    def _trailer(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at, at + MAX_TRAILERS)
        if end < 0:
            if len(data) - at >= MAX_TRAILERS:
                raise BrokenChunks("the trailers are too long")
            return -1
        if end == at:
            self.ended = True
            return end + 2
        self._trailers += end + 2 - at
        if self._trailers > MAX_TRAILERS:
            raise BrokenChunks("the trailers are too long")
        if line(data[at:end]) is None:
            raise BrokenChunks("a trailer is malformed")
        return end + 2
