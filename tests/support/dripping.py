"""A client that sends most of a large body at once, and the rest byte by byte."""

from __future__ import annotations

import asyncio
from typing import Final

from support.raw_client import Answer, RawClient, post

LARGE: Final = b'{"model":"m","prompt":"%b"}' % (b"x" * 40_000)
# What is missing of it.
LEFT: Final = 100


def framed(framing: str, data: bytes) -> bytes:
    """A part of the large body as it is sent. framing: length or chunked."""
    return data if framing == "length" else b"%x\r\n%b\r\n" % (len(data), data)


def most(framing: str) -> bytes:
    """The large request but for its last bytes."""
    head, _, _ = post(LARGE).partition(b"\r\n\r\n")
    if framing == "chunked":
        head = head.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked"
    return head + b"\r\n\r\n" + framed(framing, LARGE[:-LEFT])


async def dripped(client: RawClient, framing: str, every: float) -> Answer:
    """The answer to a request of which most was sent, while all but its last byte follow. every: seconds."""
    answering = asyncio.create_task(client.answer())
    for byte in LARGE[-LEFT:-1]:
        await client.send(framed(framing, bytes([byte])))
        await asyncio.wait({answering}, timeout=every)
        if answering.done():
            break
    return await answering
