"""How others read HTTP/1.1: h11 (written to the letter, in Python) and aiohttp's parser (llhttp, in C)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import h11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, HttpResponseParser


@dataclass(frozen=True)
class Reading:
    """A head as somebody reads it."""

    first: tuple[bytes, ...]
    headers: tuple[tuple[bytes, bytes], ...]
    chunked: bool


def reading(first: tuple[bytes, ...], headers: Iterable[tuple[bytes, bytes]], *, chunked: bool) -> Reading:
    """Comparable: h11 writes names and codings in lower case."""
    lower = [(name.lower(), value) for name, value in headers]
    return Reading(
        first,
        tuple((name, value.lower() if name == b"transfer-encoding" else value) for name, value in lower),
        chunked,
    )


def _reading(event: h11.Request | h11.Response, first: tuple[bytes, ...]) -> Reading:
    headers = [(bytes(name), bytes(value)) for name, value in event.headers]
    return reading(first, headers, chunked=(b"transfer-encoding", b"chunked") in headers)


def h11_request(raw: bytes) -> Reading | None:
    """None: refused."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    return _reading(event, (bytes(event.method), bytes(event.target), bytes(event.http_version)))


def h11_response(raw: bytes, *, to_head: bool) -> Reading | None:
    """None: refused."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="HEAD" if to_head else "POST", target="/", headers=[("Host", "e")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(raw)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Response | h11.InformationalResponse):
        return None
    return _reading(event, (b"%d" % event.status_code, bytes(event.http_version)))


def h11_body(body: bytes) -> bytes | None:
    """None: refused."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    payload = b""
    try:
        connection.next_event()
        while True:
            event = connection.next_event()
            if isinstance(event, h11.EndOfMessage):
                return payload
            if not isinstance(event, h11.Data):
                return None
            payload += event.data
    except h11.RemoteProtocolError:
        return None


class _Protocol:
    """What aiohttp's parsers and bodies want of a connection."""

    _reading_paused = False
    transport = None

    def pause_reading(self) -> None:
        """Nothing to pause."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Nothing to resume."""


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Never run: aiohttp's parsers only keep it."""
    loop = asyncio.new_event_loop()
    loop.close()
    return loop


def _aiohttp(kind: type, raw: bytes) -> tuple[Any, Any] | None:
    parser = kind(
        _Protocol(), _loop(), 2**16, max_line_size=2**17, max_field_size=2**17, max_headers=2**10, auto_decompress=False
    )
    try:
        messages, _, _ = parser.feed_data(raw)
    except HttpProcessingError:
        return None
    return messages[0] if messages else None


def aiohttp_request(raw: bytes) -> Reading | None:
    """None: refused."""
    found = _aiohttp(HttpRequestParser, raw)
    if found is None:
        return None
    message = found[0]
    version = b"%d.%d" % message.version
    first = (message.method.encode(), message.path.encode(), version)
    return reading(first, message.raw_headers, chunked=message.chunked)


def aiohttp_response(raw: bytes) -> Reading | None:
    """None: refused."""
    found = _aiohttp(HttpResponseParser, raw)
    if found is None:
        return None
    message = found[0]
    first = (b"%d" % message.code, b"%d.%d" % message.version)
    return reading(first, message.raw_headers, chunked=message.chunked)


def aiohttp_body(body: bytes) -> bytes | None:
    """None: refused."""
    found = _aiohttp(HttpRequestParser, b"POST / HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    if found is None or found[1].exception() is not None or not found[1].is_eof():
        return None
    return b"".join(data for data in found[1]._buffer)
