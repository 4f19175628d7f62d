"""A raw-socket engine for tests where bytes matter: it shows what arrived and sends exactly what a script says.

A script is an async function of one Exchange; it runs for each request on a connection, in order. Without
``exchange.close()`` the connection is kept for the next request. Health probes are answered and counted apart.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Script = Callable[["Exchange"], Awaitable[None]]
# One event of a chat's stream, as bytes on the wire.
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'


@dataclass
class Arrived:
    """One request as its bytes came."""

    head: bytes
    body: bytes
    connection: int

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines if line)]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass
class Exchange:
    """One request on one connection, as a script sees it."""

    request: Arrived
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int  # of this engine's requests, from 1
    nth_on_connection: int  # from 1

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            if self.writer.is_closing():  # uvloop's transport raises RuntimeError then
                raise ConnectionResetError("the router has closed the connection")
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(
        self, body: bytes = b'{"ok":true}', status: str = "200 OK", headers: tuple[str, ...] = (), json: bool = True
    ) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        if json:
            lines.insert(1, "Content-Type: application/json")
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def start_sse(self, *headers: str) -> None:
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def closed_by_router(self) -> None:
        """Wait until the router has closed this connection."""
        try:
            while await self.reader.read(65536):
                pass
        except OSError as error:
            if not _gone(error):
                raise
        self.writer.close()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


@dataclass
class FakeEngine:
    """``async with FakeEngine(script) as engine``: engine.url, engine.requests, engine.open_connections."""

    script: Script
    port: int = 0
    tls: ssl.SSLContext | None = None
    requests: list[Arrived] = field(default_factory=list)
    probes: int = 0
    connections: int = 0
    open_connections: int = 0
    errors: list[Exception] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeEngine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self.errors:
            raise ExceptionGroup("the engine's script failed", self.errors)

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=2**25, backlog=2048, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait for a condition over this engine's state."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        number = self.connections
        await self._notify()
        try:
            await self._requests(reader, writer, number)
        except (asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, OSError) or not _gone(error):
                self.errors.append(error)
            writer.transport.abort()
        finally:
            writer.close()
            self.open_connections -= 1
            self._tasks.discard(task)
            await self._notify()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        nth = 0
        while not writer.is_closing():
            head = await reader.readuntil(b"\r\n\r\n")
            arrived = Arrived(head[:-4], b"", number)
            if arrived.target == "/health":
                self.probes += 1
                await self._notify()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                continue
            nth += 1
            lengths = arrived.values("Content-Length")
            arrived.body = await reader.readexactly(int(lengths[0])) if lengths else b""
            self.requests.append(arrived)
            await self._notify()
            await self.script(Exchange(arrived, reader, writer, len(self.requests), nth))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _gone(error: OSError) -> bool:
    """Whether a connection was lost. ENOTCONN: it was reset before its own end of sending, which fails then."""
    return isinstance(error, ConnectionError) or error.errno == errno.ENOTCONN


async def answers(exchange: Exchange) -> None:
    """A small JSON answer with usage."""
    await exchange.answer(b'{"object":"chat.completion","usage":{"prompt_tokens":3,"completion_tokens":2}}')


def says(status: str, body: bytes = b'{"error":{"message":"A busy"}}', *headers: str) -> Script:
    """An engine that always answers so."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(body, status, headers)

    return script


def streams(*events: bytes, done: bool = True) -> Script:
    """An SSE answer of these events, complete."""

    async def script(exchange: Exchange) -> None:
        await exchange.start_sse()
        for event in events:
            await exchange.chunk(b"data: " + event + b"\n\n")
        if done:
            await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_chunks()

    return script
