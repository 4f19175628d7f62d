"""Chunked bodies while they arrive: checked, taken out of their framing, and passed on in it.

On the request path, for each read. Framing that may go on as it is comes back without a copy of its own; extensions and
trailers end here (RFC 9112 7.1.1, 7.1.2). Nothing is held back but an unfinished line of framing. Must not guess: a
size that two parsers could read in two ways is broken.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64, mypyc_attr

from headrace_router.http1.lines import FROM_ENGINES, Malformed

# Bytes of one size line; of all trailers; of all extensions beyond one byte for each of payload.
MAX_SIZE_LINE: Final = 1024
MAX_TRAILERS: Final = 16 * 1024
MAX_EXTENSIONS: Final = 16 * 1024

_DIGITS: Final = 8
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})([ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEXADECIMAL: Final = b"0123456789abcdefABCDEF"
_NO_DIGIT: Final = 16
# By byte: what it says as a hexadecimal digit.
_VALUES: Final = bytes(int(chr(byte), 16) if byte in _HEXADECIMAL else _NO_DIGIT for byte in range(256))
# How ``_size_line`` tells of both.
_DIGIT_BITS: Final = 4
_DIGIT_COUNT: Final = 15
_CR: Final = 13
_LF: Final = 10
# What a size line may be so far.
_SIZE_BEGUN: Final = re.compile(rb"[0-9A-Fa-f]{1,8}(?:[ \t]*|[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)\r?")
# Above this a view is cheaper than a copy that is joined into another.
_LARGE: Final = 2048


class BrokenChunks(Exception):
    """The framing can't be trusted. ``raw`` and ``payload``: what came before the fault in the same read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.raw = b""
        self.payload = b""


def _size_line(data: bytes, at: i64) -> i64:
    """A size without extension that is followed by CRLF, and by how many digits it is spelt; 0: something else."""
    size: i64 = 0
    start: i64 = at
    end: i64 = min(at + _DIGITS, len(data) - 2)
    while at < end:
        value: i64 = _VALUES[data[at]]
        if value == _NO_DIGIT:
            break
        size = size * 16 + value
        at += 1
    if at == start or at + 1 >= len(data) or data[at] != _CR or data[at + 1] != _LF:
        return 0
    return size << _DIGIT_BITS | (at - start)


@mypyc_attr(free_list_len=1, acyclic=True)
class ChunkedReader:
    """Reads one chunked body.

    Attributes:
        ended: the last chunk and its trailers have come. rest: the bytes behind them.
    """

    __slots__ = ("_extensions", "_held", "_left", "_trailers", "ended", "rest")

    def __init__(self) -> None:
        self._held = b""
        self._left = 0  # of the chunk under way, its CRLF included
        self._extensions = 0
        self._trailers = -1  # bytes of trailers; -1: the last chunk hasn't come
        self.ended = False
        self.rest = b""

    @property
    def at_boundary(self) -> bool:
        """Whether what was given out as raw ends at a chunk's end."""
        return not self._left

    def whole(self, data: bytes) -> int:
        """Where the payload begins if a read is one whole chunk without extension: it may go on as it is.

        0 if it is anything else, or stands in the middle of something: that is for ``feed``.
        """
        if self._left or self._held or self._trailers >= 0:
            return 0
        line = _size_line(data, 0)
        at = (line & _DIGIT_COUNT) + 2
        size = line >> _DIGIT_BITS
        length: i64 = len(data)
        if size and at + size + 2 == length and data[length - 2] == _CR and data[length - 1] == _LF:
            return at
        return 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take in a read.

        Returns:
            (raw, payload): chunks in their framing, without extensions, trailers and the last chunk; the same without
            framing.

        Raises:
            BrokenChunks: see there.
        """
        left = self._left
        if left:
            if len(data) <= left - 2:
                self._left = left - len(data)
                return data, data
        else:
            at = self.whole(data)
            if at:
                return data, data[at:-2]
        return self._feed(data)

    def _feed(self, data: bytes) -> tuple[bytes, bytes]:
        taken = _Taken(self._held + data if self._held else data)
        self._held = b""
        try:
            while taken.at < taken.size and not self.ended:
                if not self._step(taken):
                    self._held = taken.data[taken.at :]
                    return taken.given()
        except BrokenChunks as broken:
            broken.raw, broken.payload = taken.given()
            raise
        given = taken.given()
        if self.ended:
            self.rest += taken.data[taken.at :]
        return given

    def _step(self, taken: _Taken) -> bool:
        """Read on by one part of the framing or many whole chunks; whether there was enough for it."""
        if self._trailers >= 0:
            return self._trailer(taken)
        if self._left:
            return self._data(taken)
        taken.whole_chunks()
        return taken.at == taken.size or self._size(taken)

    def _size(self, taken: _Taken) -> bool:
        data, at = taken.data, taken.at
        end = data.find(b"\r\n", at, at + MAX_SIZE_LINE)
        if end < 0:
            if taken.size - at >= MAX_SIZE_LINE or not _SIZE_BEGUN.fullmatch(data, at):
                raise BrokenChunks("a chunk begins with its size in up to 8 hexadecimal digits")
            return False
        found = _SIZE.fullmatch(data, at, end)
        if found is None:
            raise BrokenChunks("a chunk begins with its size in up to 8 hexadecimal digits")
        size = int(found[1], 16)
        extension = end - found.end(1)
        self._extensions = max(0, self._extensions + extension - size)
        if self._extensions > MAX_EXTENSIONS:
            raise BrokenChunks("the chunk extensions are larger than the body")
        if not size:
            taken.skip(at, end + 2)
            self._trailers = 0
            return True
        if extension:
            taken.skip(found.end(1), end)
        taken.at = end + 2
        self._left = size + 2
        return True

    def _data(self, taken: _Taken) -> bool:
        data, at = taken.data, taken.at
        wanted = self._left - 2
        if wanted:
            end = min(at + wanted, taken.size)
            taken.payload.append(taken.piece(at, end))
            taken.at = end
            self._left -= end - at
            return True
        if data.startswith(b"\r\n", at):
            taken.at = at + 2
            self._left = 0
            return True
        if data[at:] != b"\r":
            raise BrokenChunks("a chunk is not followed by CRLF")
        return False

    def _trailer(self, taken: _Taken) -> bool:
        data, at = taken.data, taken.at
        end = data.find(b"\r\n", at, at + MAX_TRAILERS - self._trailers)
        if end < 0:
            if taken.size - at >= MAX_TRAILERS - self._trailers:
                raise BrokenChunks(f"the trailers have more than {MAX_TRAILERS} bytes")
            return False
        taken.skip(at, end + 2)
        if end == at:
            self.ended = True
            return True
        self._trailers += end + 2 - at
        try:
            FROM_ENGINES[data[at:end]]
        except Malformed as error:
            raise BrokenChunks(f"a trailer is malformed: {error}") from None
        return True


class _Taken:
    """One read while it is gone through: where it stands, what passes of it."""

    __slots__ = ("_raw", "_since", "at", "data", "payload", "size")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0
        self.payload: list[bytes | memoryview] = []
        self._raw: list[bytes] = []
        self._since = 0  # where the framing begins that passes as it is and isn't in _raw yet

    def whole_chunks(self) -> None:
        """Take the chunks without extension that have come whole."""
        data, payload = self.data, self.payload
        length: i64 = self.size
        at: i64 = self.at
        while at < length:
            line = _size_line(data, at)
            start = at + (line & _DIGIT_COUNT) + 2
            end = start + (line >> _DIGIT_BITS)
            if end == start or end + 2 > length or data[end] != _CR or data[end + 1] != _LF:
                break
            payload.append(data[start:end] if end - start < _LARGE else memoryview(data)[start:end])
            at = end + 2
        self.at = at

    def piece(self, start: int, end: int) -> bytes | memoryview:
        return self.data[start:end] if end - start < _LARGE else memoryview(self.data)[start:end]

    def skip(self, start: int, end: int) -> None:
        """What lies between doesn't pass."""
        self._raw.append(self.data[self._since : start])
        self._since = self.at = end

    def given(self) -> tuple[bytes, bytes]:
        """(raw, payload) up to ``at``."""
        last = self.data if self.at - self._since == self.size else self.data[self._since : self.at]
        raw = b"".join([*self._raw, last]) if self._raw else last
        return raw, b"".join(self.payload)
