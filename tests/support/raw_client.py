"""A raw-socket HTTP client for tests where bytes matter, and a strict reader of what came back."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Answer:
    """One answer. ``complete``: its framing says that nothing is missing (an unframed one never says so)."""

    raw: bytes
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    complete: bool
    framing: str  # length | chunked | none

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        found = self.values(name)
        return found[0] if found else None

    def json(self) -> dict[str, object]:
        parsed = json.loads(self.body)
        assert isinstance(parsed, dict)
        return parsed

    @property
    def code(self) -> object:
        error = self.json()["error"]
        assert isinstance(error, dict)
        return error["code"]


def read_answer(raw: bytes) -> Answer:
    """Take apart exactly one answer; anything after its end fails."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    version, status, _ = (lines[0] + " ").split(" ", 2)
    assert version == "HTTP/1.1", lines[0]
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
    fields = {name.lower(): value for name, value in headers}
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body, complete, after = _dechunk(rest)
        assert not after, after
        return Answer(raw, int(status), headers, body, complete, "chunked")
    if "content-length" in fields:
        length = int(fields["content-length"])
        assert len(rest) <= length, rest[length:]
        return Answer(raw, int(status), headers, rest, len(rest) == length, "length")
    return Answer(raw, int(status), headers, rest, False, "none")


def _dechunk(rest: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while True:
        line, found, after = rest.partition(b"\r\n")
        if not found:
            assert not line or all(c in b"0123456789abcdefABCDEF" for c in line), line
            return body, False, b""
        size = int(line, 16)
        if size == 0:
            assert after.startswith(b"\r\n"), after
            return body, True, after[2:]
        if len(after) < size + 2:
            return body + after[:size], False, b""
        assert after[size : size + 2] == b"\r\n", after[size : size + 2]
        body, rest = body + after[:size], after[size + 2 :]


class RawClient:
    """One connection to a router."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, limit: int = 2**25) -> None:
        parts = urlsplit(url)
        self._limit = limit
        self._tls = tls
        self._host, self._port = parts.hostname, parts.port
        self.received = b""

    async def __aenter__(self) -> RawClient:
        self.reader, self.writer = await asyncio.open_connection(
            self._host, self._port, limit=self._limit, ssl=self._tls
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, marker: bytes, seconds: float = 20.0) -> bytes:
        """Read until ``marker`` was received; returns all received so far."""
        async with asyncio.timeout(seconds):
            while marker not in self.received:
                data = await self.reader.read(65536)
                assert data, f"closed before {marker!r}: {self.received!r}"
                self.received += data
        return self.received

    async def to_end(self, seconds: float = 20.0) -> bytes:
        """Read until the router closes (``reset`` tells how)."""
        self.reset = False
        async with asyncio.timeout(seconds):
            try:
                while data := await self.reader.read(65536):
                    self.received += data
            except ConnectionResetError:
                self.reset = True
        return self.received

    async def answer(self, seconds: float = 20.0) -> Answer:
        """Read one framed answer and leave the connection open."""
        async with asyncio.timeout(seconds):
            while True:
                if b"\r\n\r\n" in self.received:
                    read = read_answer(self.received)
                    if read.complete:
                        self.received = b""
                        return read
                data = await self.reader.read(65536)
                if not data:
                    return read_answer(self.received)
                self.received += data


def post(
    body: bytes | dict[str, object],
    path: str = "/v1/chat/completions",
    *headers: str,
    version: str = "1.1",
) -> bytes:
    """The bytes of a POST."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/{version}",
        "Host: router",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def ask(url: str, data: bytes, seconds: float = 20.0, tls: ssl.SSLContext | None = None) -> Answer:
    """One request on its own connection, read until its end or the connection's."""
    async with RawClient(url, tls) as client:
        await client.send(data)
        return await client.answer(seconds)


async def get(url: str, path: str) -> Answer:
    """GET on a connection of its own."""
    return await ask(url, f"GET {path} HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n".encode())
