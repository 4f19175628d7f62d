"""The listener's protocol: aiohttp's request handler with what a relay needs beside it.

On the request path. A client that leaves cancels its request within one loop turn, before the first byte too; end of
input after the request counts as leaving. Reading is never paused while a request runs (or leaving would go unseen):
what is pipelined beyond a bound is dropped, and the connection closes after the running answer. A fast path for the
hot route takes ``data_received`` here. Must not decide anything about routing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_protocol import RequestHandler

from headrace_router.proxy.coroutine.answer import Answer
from headrace_router.proxy.refusals import Refusal

MAX_PIPELINED: Final = 64 * 1024
# Seconds. Longer than common load balancers keep theirs (60 s, 600 s), or they would send on a closing connection.
KEEP_ALIVE: Final = 620.0
# The same before the first request of a connection.
FIRST_REQUEST: Final = KEEP_ALIVE
# Seconds of reading on after a refusal that didn't wait for the body, so that the client gets to see it.
LINGERING: Final = 5.0
MAX_HEAD_LINE: Final = 16 * 1024
MAX_HEAD_FIELD: Final = 32 * 1024

_UNPARSED: Final = Refusal(400, "bad_request", "the request could not be parsed as HTTP/1.1", final=True)
_FAULT: Final = Refusal(500, "internal_error", "the router failed on this request")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(RequestHandler):
    """One client connection."""

    _pipelined = 0
    _answering: Answer | None = None
    _unused: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """aiohttp limits the time between requests, not that before the first."""
        super().connection_made(transport)
        self._unused = asyncio.get_running_loop().call_later(FIRST_REQUEST, transport.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See RequestHandler."""
        self._used()
        super().connection_lost(exc)

    def _used(self) -> None:
        if self._unused is not None:
            self._unused.cancel()
            self._unused = None

    def answer_to(self, request: web.BaseRequest) -> Answer:
        """The one answer of a request that this connection carries."""
        self._pipelined = 0
        self._used()
        self._answering = Answer(
            self.transport,
            self._drain_helper,
            old=request.version < (1, 1),
            keep_alive=bool(request.keep_alive) and not self._close,
            bodiless=request.method == "HEAD",
        )
        return self._answering

    def data_received(self, data: bytes) -> None:
        """Count what comes while a request runs whose own body has come."""
        running = self._current_request
        if running is not None and data and running._payload.is_eof():
            self._pipelined += len(data)
            if self._pipelined > MAX_PIPELINED:
                self.close()
                return
        super().data_received(data)

    def _pause_reading_for_buffer(self) -> None:
        """Too many pipelined requests: close after this answer instead of not reading."""
        self.close()

    def eof_received(self) -> None:
        """A client that will send nothing more has left; what it was sent already still flushes."""
        task = self._task_handler
        if self._current_request is not None and task is not None:
            task.cancel()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        """A head that can't be parsed, or a fault of our own: JSON, one status line, then close."""
        if status >= 500:
            self.log_exception("request failed", exc_info=exc)
        if self._answering is not None and self._answering.sent:
            self._answering.abort()
            raise ConnectionResetError("an answer was under way")
        refusal = _UNPARSED if status < 500 else _FAULT
        answer = Answer(self.transport, self._drain_helper, old=False, keep_alive=False, bodiless=False)
        answer.whole(refusal.status, refusal.phrase, refusal.headers(), refusal.body(anthropic=False))
        return Given(answer)


class Given(web.StreamResponse):
    """Tells aiohttp that the answer was written already, and whether the connection is kept."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(status=answer.status or 200)
        self._kept = answer.complete and answer.keep_alive

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection serves another request."""
        return self._kept

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002
        """The head has left already."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """The body has ended already."""


class Listener(web.Server):
    """Makes a Connection for each client."""

    def __init__(self, handler: Handler, **settings: Any) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_HEAD_LINE,
            max_field_size=MAX_HEAD_FIELD,
            lingering_time=LINGERING,
            keepalive_timeout=KEEP_ALIVE,
            **settings,
        )

    def __call__(self) -> Connection:
        """A protocol for a new connection."""
        return Connection(self, loop=asyncio.get_running_loop(), **self._kwargs)

    def close_idle(self) -> None:
        """Close idle connections; busy ones close after their request, those just made after their first."""
        for connection in self.connections:
            if connection._request_count:
                connection.close()
