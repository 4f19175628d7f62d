"""Questions and answers between the process that serves the pages and the workers, on a pair of sockets.

Beside every path. A frame is its length (4 bytes) and MessagePack. Metrics come in many small frames, so that a worker
makes them between two turns of its loop. Both ends are of one router, started by one process from one program: there is
nothing to negotiate.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, TypeVar

import msgspec

from headrace_router.telemetry.snapshot import Part

MAX_FRAME: Final = 64 * 2**20
_LENGTH: Final = Struct("!I")
T = TypeVar("T")


class Question(msgspec.Struct, frozen=True, array_like=True):
    """what: metrics, ready or explain. query: of the page's URL."""

    number: int
    what: str
    query: dict[str, str] = {}


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """A part of metrics; or the end of the answer, with status and JSON where there are any.

    number: the question's; 0: what a worker says last, unasked.
    """

    number: int
    part: Part | None = None
    status: int = 0
    body: bytes = b""


_ENCODE: Final = msgspec.msgpack.Encoder().encode


def framed(value: Question | Answer) -> bytes:
    """The bytes of a frame."""
    data = _ENCODE(value)
    return _LENGTH.pack(len(data)) + data


async def read_frame(reader: asyncio.StreamReader, decode: msgspec.msgpack.Decoder[T]) -> T | None:
    """The next frame; None at the end, or where what comes is no frame."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME:
            return None
        return decode.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
        return None
