"""The client's side of one exchange: writes one head, then framed body bytes, then a true end or none.

On the request path, synchronous: the transport buffers, and its protocol says when that is too much. Framing is chosen
once: the engine's Content-Length, the engine's own chunks as they came, chunks of ours, or (HTTP/1.0) the connection's
end. A cut answer never looks complete: no zero chunk, a missing length, or a reset where nothing else could tell
(STR-01, PRO-02). One status line per answer, whatever fails later (STR-02). Must not know engines, tables or policies.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from mypy_extensions import mypyc_attr

from headrace_router.outbox import ClientTransport

_NO_LINGER: Final = struct.pack("ii", 1, 0)
# Where Linux's tcp_info has the bytes that the other side has acknowledged (since 4.1).
_ACKED: Final = struct.Struct("=120xQ")
# Seconds that a client may take for the last bytes of an answer that failed.
_LAST_BYTES: Final = 5.0
_CONTROL: Final = bytes(range(32)) + b"\x7f"
_END_OF_CHUNKS: Final = b"0\r\n\r\n"
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_KEEP_ALIVE: Final = b"Connection: keep-alive\r\n"


# How a body is framed. Plain numbers: an enumeration's members cost more to look up than the comparison.
_NOTHING: Final = 0
_LENGTH: Final = 1
_THEIR_CHUNKS: Final = 2
_OUR_CHUNKS: Final = 3
_CONNECTION_END: Final = 4


@mypyc_attr(free_list_len=1)
class Answer:
    """Writes one answer to a client's transport.

    Args:
        transport: the client's connection.
        old: the client speaks HTTP/1.0.
        keep_alive: the client wants the connection kept; may be taken back until the head is out.
        bodiless: HEAD.
    """

    __slots__ = (
        "_framing",
        "_head",
        "_old",
        "_remaining",
        "bodiless",
        "complete",
        "keep_alive",
        "sent",
        "status",
        "transport",
    )

    def __init__(self, transport: ClientTransport, *, old: bool, keep_alive: bool, bodiless: bool) -> None:
        self.transport = transport
        self._old = old
        self._head: list[bytes] | None = None  # until it is out
        self._framing = _NOTHING
        self._remaining = 0
        self.keep_alive = keep_alive
        self.bodiless = bodiless
        self.status = 0
        self.sent = False
        self.complete = False

    def begin(
        self, status: int, reason: bytes, lines: list[bytes], length: int | None, *, chunked: bool = False
    ) -> None:
        """Fix status and header lines; they leave with the first body bytes.

        Args:
            status: of the answer.
            reason: its phrase.
            lines: header lines, each with its CRLF, in pieces of any size; without Content-Length, Transfer-Encoding
                and Connection.
            length: of the body, None where it is not known.
            chunked: ``put`` gets the body's chunks as they came.
        """
        assert not self.sent, "one status line an answer"
        framed = b""
        if status in (204, 304) or self.bodiless:
            self.bodiless = True
            if length is not None and status != 204:
                framed = b"Content-Length: %d\r\n" % length
        elif length is not None:
            self._framing = _LENGTH
            self._remaining = length
            framed = b"Content-Length: %d\r\n" % length
        elif self._old:
            self._framing = _CONNECTION_END
            self.keep_alive = False
        else:
            self._framing = _THEIR_CHUNKS if chunked else _OUR_CHUNKS
            framed = _CHUNKED
        if not self.keep_alive:
            framed += _CLOSE
        elif self._old:
            framed += _KEEP_ALIVE
        self._head = [_status_line(status, reason), *lines, framed, b"\r\n"]
        self.status = status
        self.sent = True

    def whole(self, status: int, reason: bytes, lines: bytes, body: bytes) -> None:
        """Send a small answer of our own at once."""
        self.begin(status, reason, [lines], len(body))
        self._send(b"" if self.bodiless else body)
        self.complete = True

    def put(self, raw: bytes, payload: bytes) -> None:
        """Send body bytes. ``raw``: as the engine framed them; ``payload``: the same without framing.

        Raises:
            ConnectionResetError: the connection is closing already.
        """
        framing = self._framing
        if framing == _THEIR_CHUNKS:
            data = raw
        elif framing == _LENGTH:
            data = payload if len(payload) <= self._remaining else payload[: self._remaining]
            self._remaining -= len(data)
        elif not payload or framing == _NOTHING:
            return
        else:
            data = payload if framing == _CONNECTION_END else _chunk(payload)
        self._send(data)

    def put_chunk(self, raw: bytes, at: int) -> None:
        """The same for one whole chunk of the engine's, its payload from ``at`` on.

        Raises:
            ConnectionResetError: the connection is closing already.
        """
        if self._framing == _THEIR_CHUNKS:
            self._send(raw)
        else:
            self.put(raw, raw[at:-2])

    def end(self) -> None:
        """The body is complete. Short of its length it is not: then the connection is aborted.

        Raises:
            ConnectionResetError: the connection is closing already.
        """
        if self._remaining:
            self.abort()
            return
        if self._framing == _THEIR_CHUNKS or self._framing == _OUR_CHUNKS:
            self._send(_END_OF_CHUNKS)
        else:
            self._send(b"")
        self.complete = True

    def fail(self, event: bytes | None, *, at_boundary: bool) -> None:
        """The body can't be completed: say so by ``event`` where the framing has room, and close without a true end.

        ``at_boundary``: what was put last ended where one of the engine's chunks ends.
        """
        framing = self._framing
        room = framing in (_OUR_CHUNKS, _CONNECTION_END) or (framing == _THEIR_CHUNKS and at_boundary)
        if event is None or not self.sent or not room or self.transport.is_closing():
            self.abort()
            return
        self.keep_alive = False
        self._send(event if framing == _CONNECTION_END else _chunk(event))
        self.transport.close()
        asyncio.get_running_loop().call_later(_LAST_BYTES, self.transport.abort)

    def leave(self) -> None:
        """The client has left, or sends nothing more: what was written may still reach it, but never as a whole."""
        self.keep_alive = False
        if not self.complete and self.sent and self._framing == _CONNECTION_END and not self.transport.is_closing():
            self.abort()

    def taken(self) -> int:
        """A number that grows as the client takes what it was sent, and by nothing else.

        What the kernel has acknowledged: a transport's own buffer stands still while megabytes leave the kernel's, and
        TLS has one that can't be seen.
        """
        connection = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError, struct.error):
            found: int = _ACKED.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size))[0]
            return found
        return -self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Cut the connection so that the client can't take the answer for complete."""
        self.keep_alive = False
        self.complete = False
        if self._framing == _CONNECTION_END:
            connection = self.transport.get_extra_info("socket")
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _send(self, data: bytes) -> None:
        if self.transport.is_closing():
            raise ConnectionResetError("the client has left")
        head = self._head
        if head is not None:
            self._head = None
            head.append(data)
            data = b"".join(head)
        if data:
            self.transport.write(data)


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _status_line(status: int, reason: bytes) -> bytes:
    if status == 200 and reason == b"OK":
        return b"HTTP/1.1 200 OK\r\n"
    return b"HTTP/1.1 %d %b\r\n" % (status, reason.translate(None, _CONTROL))
