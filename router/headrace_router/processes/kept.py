"""What processes that have ended had counted, where it outlives whoever serves the pages.

Beside every path. A file in memory, made before anything is forked; one process at a time writes it. Written beside
what stands there, then made valid by one write, so that an end in the middle leaves what was there before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from headrace_router.telemetry.snapshot import Part

# Where the valid content begins, and its length.
_HEAD: Final = Struct("2q")


class Kept:
    """Parts of metrics, replaced as a whole."""

    def __init__(self) -> None:
        self._file = os.memfd_create("headrace-router-kept", os.MFD_CLOEXEC)
        os.write(self._file, _HEAD.pack(_HEAD.size, 0))

    def load(self) -> list[Part]:
        """What was saved last."""
        at, length = _HEAD.unpack(os.pread(self._file, _HEAD.size, 0))
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(os.pread(self._file, length, at), type=list[Part]) if length else []
        return []

    def save(self, parts: Sequence[Part]) -> None:
        """Keep these and nothing else."""
        data = msgspec.msgpack.encode(parts)
        at, length = _HEAD.unpack(os.pread(self._file, _HEAD.size, 0))
        room = at - _HEAD.size
        begin = _HEAD.size if len(data) <= room else at + length
        written = 0
        while written < len(data):
            written += os.pwrite(self._file, data[written:], begin + written)
        os.pwrite(self._file, _HEAD.pack(begin, len(data)), 0)
        if begin == _HEAD.size:
            os.ftruncate(self._file, begin + len(data))
