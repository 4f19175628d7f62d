"""The client's side of one exchange: writes one head, then framed body bytes, then a true end or none.

On the request path. Framing is chosen once: the engine's Content-Length, chunks, or (HTTP/1.0) the connection's end. A
cut answer never looks complete: no zero chunk, a missing length, or a reset where nothing else could tell (STR-01,
PRO-02). One status line per answer, whatever fails later (STR-02). Must not know engines, tables or policies.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from headrace_router.http1.headers import head

_NO_LINGER: Final = struct.pack("ii", 1, 0)
# Seconds that a client may take for the last bytes of an answer that failed.
_LAST_BYTES: Final = 5.0


class Answer:
    """Writes one answer to a client's transport.

    Args:
        transport: the client's connection.
        drain: waits until the client has taken what was written.
        old: the client speaks HTTP/1.0.
        keep_alive: the client wants the connection kept.
        bodiless: HEAD.
    """

    __slots__ = (
        "_chunked",
        "_drain",
        "_framed_by_end",
        "_head",
        "_old",
        "_remaining",
        "_transport",
        "bodiless",
        "complete",
        "keep_alive",
        "sent",
        "status",
    )

    def __init__(
        self,
        transport: asyncio.Transport | None,
        drain: Callable[[], Awaitable[None]],
        *,
        old: bool,
        keep_alive: bool,
        bodiless: bool,
    ) -> None:
        self._transport = transport
        self._drain = drain
        self._old = old
        self._head = b""
        self._chunked = False
        self._framed_by_end = False
        self._remaining: int | None = None
        self.keep_alive = keep_alive
        self.bodiless = bodiless
        self.status = 0
        self.sent = False
        self.complete = False

    def begin(self, status: int, reason: bytes, headers: Iterable[tuple[bytes, bytes]], length: int | None) -> None:
        """Fix status and headers; they leave with the first body bytes. ``length`` None: not known."""
        assert not self.sent, "one status line an answer"
        lines = list(headers)
        if status in (204, 304) or self.bodiless:
            self.bodiless = True
            if length is not None and status != 204:
                lines.append((b"Content-Length", b"%d" % length))
        elif length is not None:
            self._remaining = length
            lines.append((b"Content-Length", b"%d" % length))
        elif self._old:
            self._framed_by_end = True
            self.keep_alive = False
        else:
            self._chunked = True
            lines.append((b"Transfer-Encoding", b"chunked"))
        if not self.keep_alive:
            lines.append((b"Connection", b"close"))
        elif self._old:
            lines.append((b"Connection", b"keep-alive"))
        self._head = head(status, reason, lines)
        self.status = status
        self.sent = True

    def whole(self, status: int, reason: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a small answer of our own at once.

        Raises:
            ConnectionResetError: the client has left.
        """
        self.begin(status, reason, headers, len(body))
        self._send(self._head if self.bodiless else self._head + body)
        self._head = b""
        self.complete = True

    async def write(self, data: bytes) -> None:
        """Send body bytes; returns when the client keeps up. Bytes beyond the length are dropped."""
        if self._put(data):
            await self._drain()

    async def end(self) -> None:
        """The body is complete. Short of its length it is not: then the connection is aborted."""
        if self._remaining:
            self.abort()
            return
        tail = b"0\r\n\r\n" if self._chunked else b""
        self._send(self._head + tail)
        self._head = b""
        self.complete = True
        await self._drain()

    def fail(self, event: bytes | None) -> None:
        """The body can't be completed: say so by ``event`` where the framing has room, and close without a true end."""
        if event is not None and self.sent and (self._chunked or self._framed_by_end):
            self._put(event)
            self.keep_alive = False
            if self._transport is not None:
                self._transport.close()
                asyncio.get_running_loop().call_later(_LAST_BYTES, self._transport.abort)
        else:
            self.abort()

    def abort(self) -> None:
        """Cut the connection so that the client can't take the answer for complete."""
        self.keep_alive = False
        if self._transport is None:
            return
        if self._framed_by_end:
            connection = self._transport.get_extra_info("socket")
            if connection is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def _put(self, data: bytes) -> bool:
        if self.bodiless or not data:
            return False
        if self._remaining is not None:
            data = data[: self._remaining]
            self._remaining -= len(data)
        front, self._head = self._head, b""
        if self._chunked:
            self._send(b"%b%x\r\n%b\r\n" % (front, len(data), data))
        else:
            self._send(front + data if front else data)
        return True

    def _send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the client has left")
        if data:
            self._transport.write(data)
