"""Takes in what is not hot, by aiohttp's own handler: chunked uploads, Expect, HTTP/1.0, other methods.

On the request path, the slow one. A handler is made for one message and let go as soon as its body is whole, before
anything is asked of an engine: the answer streams without it, and the connection is on the fast path again afterwards.
It gets the request line and the framing of its message and exactly its body, whose end the connection's own reader has
found, so that what follows is never in aiohttp's hands; and it writes nothing. Must not decide anything about requests.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from headrace_router.http1.chunked import ChunkedReader
from headrace_router.http1.lines import CODING, HOST, LENGTH
from headrace_router.http1.request_head import MAX_FIELD, MAX_HEAD, MAX_LINES, RequestHead

_FRAMING: Final = HOST | LENGTH | CODING
_LAST_CHUNK: Final = b"0\r\n\r\n"


class Taker(Protocol):
    """Who wants the message: the client's connection."""

    def taken_in(self, body: bytes) -> None:
        """The whole body."""

    def not_taken_in(self) -> None:
        """aiohttp would not have the message."""


class AiohttpSide(web.Server):
    """All such messages of a listener."""

    def __init__(self) -> None:
        super().__init__(
            _take_in,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            # Heads were checked against the bounds already; these only must not be narrower.
            max_line_size=MAX_HEAD,
            max_field_size=max(MAX_HEAD, MAX_FIELD),
            max_headers=2 * MAX_LINES,
            lingering_time=0.0,
            keepalive_timeout=0.0,
        )

    def open(self, taker: Taker, head: RequestHead) -> Taking:
        """Begin with a message."""
        taking = Taking(taker, head.chunked)
        handler = _Handler(self, loop=asyncio.get_running_loop(), **self._kwargs)
        handler.taking = taking
        taking.handler = handler
        handler.connection_made(taking)
        handler.data_received(_framing_of(head))
        return taking


class Taking(asyncio.Transport):
    """One message under way: the connection feeds it, and to aiohttp's handler it is the transport.

    Attributes:
        chunks: finds the end of a chunked body; None with a length.
        whole: all its bytes were fed.
    """

    __slots__ = ("_done", "_taker", "chunks", "handler", "whole")

    def __init__(self, taker: Taker, chunked: bool) -> None:
        super().__init__()
        self._taker = taker
        self._done = False
        self.chunks = ChunkedReader() if chunked else None
        self.handler: RequestHandler | None = None
        self.whole = False

    def feed(self, raw: bytes, *, whole: bool) -> None:
        """The next bytes of the body, in their framing; ``whole``: the last."""
        self.whole = whole
        if whole and self.chunks is not None:
            raw += _LAST_CHUNK
        if raw and self.handler is not None:
            self.handler.data_received(raw)

    def done(self, body: bytes | None) -> None:
        """aiohttp has the body, or (None) gave up."""
        if not self._done:
            self._done = True
            if body is None:
                self._taker.not_taken_in()
            else:
                self._taker.taken_in(body)

    def drop(self) -> None:
        """The client has left, or is refused: the handler's task ends."""
        self._done = True
        self._let_go()

    def _let_go(self) -> None:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.connection_lost(None)

    # What aiohttp's handler asks of a transport

    def close(self) -> None:
        """The handler has ended."""
        self._let_go()
        self.done(None)

    abort = close

    def is_closing(self) -> bool:
        """Whether the handler was let go."""
        return self.handler is None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nothing of aiohttp's reaches the client."""

    def pause_reading(self) -> None:
        """The connection bounds what comes."""

    def resume_reading(self) -> None:
        """See pause_reading."""


class _Handler(RequestHandler):
    """Serves one message; never writes an answer."""

    taking: Taking

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go. A message that it never began with knows it, and would be kept with it until a collection."""
        super().connection_lost(exc)
        self._messages.clear()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,  # noqa: ARG002
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """What aiohttp can't parse, though its head and framing were found to be sound."""
        if exc is not None and not isinstance(exc, HttpProcessingError):
            self.log_exception("taking a request in failed", exc_info=exc)
        self.taking.done(None)
        return _Nothing()


class _Nothing(web.StreamResponse):
    """Tells aiohttp that there is nothing to write and that this was the last message."""

    @property
    def keep_alive(self) -> bool | None:
        """Never."""
        return False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002
        """No head."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """No body."""


async def _take_in(request: web.BaseRequest) -> web.StreamResponse:
    handler = request.protocol
    assert isinstance(handler, _Handler)
    parts: list[bytes] = []
    try:
        while not request.content.at_eof():
            parts.append(await request.content.readany())
    except (web.RequestPayloadError, HttpProcessingError):
        handler.taking.done(None)
        return _Nothing()
    handler.taking.done(b"".join(parts))
    return _Nothing()


def _framing_of(head: RequestHead) -> bytes:
    """What aiohttp needs of a head. The rest was read by one set of rules already, and is never read by a second."""
    first = f"{head.method} {head.target} HTTP/1.{head.minor}\r\n".encode("ascii")
    return b"%b%b\r\n" % (first, b"".join([line.raw for line in head.marked if line.rule & _FRAMING]))
