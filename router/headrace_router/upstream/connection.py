"""One connection to an engine.

On the request path, once a read. A request leaves as head and body in one write; what comes back is checked against
its framing and handed on at once. A connection is used again only after an answer that ended where its framing says,
to a request that was written whole, with nothing behind it. Must not pick, retry or keep time.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from abc import ABC, abstractmethod
from typing import Final, cast

from mypy_extensions import mypyc_attr

from headrace_router.http1.chunked import BrokenChunks, ChunkedReader
from headrace_router.http1.request_head import MAX_HEAD, find_end
from headrace_router.http1.response_head import BrokenHead, ResponseHead, ResponseHeads
from headrace_router.upstream.attempt import Attempt, Held
from headrace_router.upstream.port import Cut, Lost, Outgoing, Sink

# Bodies up to this leave with their head; larger ones follow in pieces, as fast as the engine takes them.
AT_ONCE: Final = 64 * 1024
_PIECE: Final = 256 * 1024
# Interim answers (1xx) before the final one; engines send one at most.
MAX_INTERIM: Final = 16
# Reads of what a failing connection still holds.
_LAST_READS: Final = 64
_READ: Final = 64 * 1024
# Request lines of an endpoint that are kept: as many as a policy has paths, not what a client makes up.
_MAX_STARTS: Final = 32
_MAX_START: Final = 512
_LENGTH_IS: Final = b"Content-Length: "
_HEAD_ENDS: Final = b"\r\n\r\n"
_UNREAD: Final = select.POLLIN | getattr(select, "POLLRDHUP", 0)

# What the next bytes are.
_NOTHING: Final = 0
_HEAD: Final = 1
_LENGTH: Final = 2
_CHUNKED: Final = 3
_TO_END: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class Keeper(ABC):
    """Who takes a connection back.

    starts: request line and Host by (method, target), of requests seen before. heads: of the answers from there.
    """

    __slots__ = ("heads", "host_line", "starts")

    def __init__(self, host_line: bytes) -> None:
        self.host_line = host_line
        self.starts: dict[tuple[str, str], bytes] = {}
        self.heads = ResponseHeads()

    def start(self, method: str, target: str) -> bytes:
        """Request line and Host, as they go out."""
        found = self.starts.get((method, target))
        if found is None:
            found = b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method.encode("ascii"), target.encode("ascii"), self.host_line)
            if len(found) <= _MAX_START:
                if len(self.starts) >= _MAX_STARTS:
                    self.starts.clear()
                self.starts[method, target] = found
        return found

    @abstractmethod
    def keep(self, connection: Connection) -> None:
        """It is free for another request."""

    @abstractmethod
    def lost(self, connection: Connection) -> None:
        """It has ended, in use or not."""


class Connection(Held):
    """Carries one request after the other.

    Attributes:
        since: when it became idle. used: whether it carried a request before the one under way.
    """

    __slots__ = (
        "_attempt",
        "_begun",
        "_bodiless",
        "_interim",
        "_keep",
        "_keeper",
        "_left",
        "_next",
        "_paused",
        "_rest",
        "_socket",
        "_transport",
        "_unread",
        "_writable",
        "since",
        "used",
    )

    def __init__(self, keeper: Keeper, raw: socket.socket | None, *, tls: bool = False) -> None:
        """``raw``: the socket beneath."""
        self._keeper = keeper
        self._socket = None if tls else raw
        self._unread: select.poll | None = None
        if raw is not None:
            self._unread = select.poll()
            self._unread.register(raw.fileno(), _UNREAD)
        self._transport: asyncio.Transport | None = None
        self._attempt: Attempt | None = None
        self._next = _NOTHING
        self._begun: bytearray | None = None  # a head that isn't whole yet
        self._left = 0  # bytes of the body that its length still promises
        self._interim = 0
        self._rest: memoryview | None = None  # of the request's body, not written yet
        self._bodiless = False
        self._keep = False
        self._paused = False
        self._writable = True
        self.since = 0.0
        self.used = False

    @property
    def there(self) -> bool:
        """Between made and lost."""
        return self._transport is not None

    def usable(self) -> bool:
        """Whether a request may go out on it: nothing has come meanwhile, neither bytes nor an end, and nothing waits
        to be read that the loop hasn't heard of yet. What TLS says of its own comes before a first answer."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        asked = self._unread if self.used or self._socket is not None else None
        return asked is None or not asked.poll(0)

    def carry(self, attempt: Attempt, outgoing: Outgoing) -> None:
        """Write a request; what comes of it goes to the attempt's sink, never from within this call."""
        transport = self._transport
        assert transport is not None
        body = outgoing.body
        self._attempt = attempt
        attempt.held = self
        self._next = _HEAD
        self._interim = 0
        self._bodiless = outgoing.method == "HEAD"
        size = len(body)
        whole = size <= AT_ONCE
        start = self._keeper.start(outgoing.method, outgoing.target)
        first = body if whole else body[:AT_ONCE]
        transport.write(b"".join([start, *outgoing.lines, _LENGTH_IS, str(size).encode(), _HEAD_ENDS, first]))
        if not whole:
            self._rest = memoryview(body)[AT_ONCE:]
            self._write_on()

    def close(self) -> None:
        """End it when what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def give_up(self) -> None:
        """End it now; the attempt hears nothing more."""
        self._attempt = None
        self._rest = None
        if self._transport is not None:
            self._transport.abort()

    def fail(self) -> None:
        """End it now; the attempt hears of it soon."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """See Leg."""
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """See Leg."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable = False

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable = True
        if self._rest is not None:
            self._write_on()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        attempt = self._attempt
        if attempt is None:
            # Nothing was asked: whatever this is, the next answer would be taken for it.
            self.fail()
        elif self._next == _HEAD:
            self._read_head(attempt, data)
        else:
            self._read_body(attempt, data)

    def eof_received(self) -> None:
        """See asyncio.Protocol."""
        if self._attempt is None:
            return
        if self._next == _TO_END:
            self._ended(self._attempt, b"")
        else:
            # Not by returning: the loop would first wait until a body that nobody reads is written.
            self.fail()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        try:
            if self._attempt is not None and isinstance(exc, OSError) and self._socket is not None:
                self._read_last(self._socket)
        finally:
            self._rest = None
            self._transport = self._socket = self._unread = None
            attempt, self._attempt = self._attempt, None
            self._keeper.lost(self)
            if attempt is not None:
                attempt.fail(self._failure(exc))

    def _failure(self, exc: Exception | None) -> Lost | Cut:
        said = str(exc) if exc is not None and str(exc) else "the engine closed the connection"
        if self._next != _HEAD:
            return Cut(said)
        return Lost(said, reused=self.used and self._begun is None and not self._interim)

    # The answer.

    def _read_head(self, attempt: Attempt, data: bytes) -> None:
        end = self._end_of_head(data)
        while end > 0:
            if self._begun is not None:
                data, self._begun = bytes(self._begun), None
            raw, data = (data, b"") if end == len(data) else (data[:end], data[end:])
            try:
                head = self._keeper.heads.parse(raw, bodiless_request=self._bodiless)
            except BrokenHead as error:
                self._break(attempt, Lost(f"the answer's head is broken: {error}", reused=False))
                return
            if head.status >= 200:
                self._begin(attempt, head, data)
                return
            self._interim += 1
            if head.status == 101 or self._interim > MAX_INTERIM:
                what = "to a request that offers no other protocol" if head.status == 101 else "too often"
                self._break(attempt, Lost(f"answered {head.status} {what}", reused=False))
                return
            end = self._end_of_head(data)
        if self._begun is not None and len(self._begun) > MAX_HEAD:
            self._break(attempt, Lost(f"the answer's head has more than {MAX_HEAD} bytes", reused=False))

    def _end_of_head(self, data: bytes) -> int:
        """Where the head ends in what was begun and this; -1 keeps both for later."""
        begun = self._begun
        if begun is None:
            end = self._keeper.heads.find_end(data)
            if end < 0 and data:
                self._begun = bytearray(data)
            return end
        start = max(len(begun) - 3, 0)
        begun += data
        return find_end(begun, start)

    def _begin(self, attempt: Attempt, head: ResponseHead, data: bytes) -> None:
        self._keep = head.keep_alive
        if head.bodiless:
            self._next, self._left = _LENGTH, 0
        elif head.chunked:
            self._next = _CHUNKED
            attempt.chunks = ChunkedReader()
        elif head.length is not None:
            self._next, self._left = _LENGTH, head.length
        else:
            self._next = _TO_END
        assert attempt.sink is not None
        attempt.sink.head_came(head)
        if self._attempt is attempt and (data or (self._next == _LENGTH and not self._left)):
            self._read_body(attempt, data)

    def _read_body(self, attempt: Attempt, data: bytes) -> None:
        sink = attempt.sink
        assert sink is not None
        if self._next == _CHUNKED:
            self._read_chunks(attempt, sink, data)
        elif self._next == _TO_END:
            sink.body_came(data, data)
        else:
            left = self._left - len(data)
            if left > 0:
                self._left = left
                sink.body_came(data, data)
                return
            self._left = 0
            behind = b""
            if left < 0:
                data, behind = data[:left], data[left:]
            if data:
                sink.body_came(data, data)
            if self._attempt is attempt:
                self._ended(attempt, behind)

    def _read_chunks(self, attempt: Attempt, sink: Sink, data: bytes) -> None:
        chunks = attempt.chunks
        assert chunks is not None
        at = chunks.whole(data)
        if at:
            sink.chunk_came(data, at)
            return
        broken = None
        try:
            raw, payload = chunks.feed(data)
        except BrokenChunks as error:
            raw, payload, broken = error.raw, error.payload, error
        if raw:
            sink.body_came(raw, payload)
        if self._attempt is not attempt:
            return
        if broken is not None:
            self._break(attempt, Cut(str(broken)))
        elif chunks.ended:
            self._ended(attempt, chunks.rest)

    def _ended(self, attempt: Attempt, behind: bytes) -> None:
        """The answer is whole. Bytes behind it, or a request that the engine didn't wait for, end the connection."""
        self._attempt = None
        self._next = _NOTHING
        sink, attempt.held, attempt.sink = attempt.sink, None, None
        transport = self._transport
        if transport is not None:
            if self._rest is not None or transport.get_write_buffer_size():
                self._rest = None
                transport.abort()
            elif not self._keep or behind or transport.is_closing():
                transport.close()
            else:
                if self._paused:
                    self.resume()
                self._keeper.keep(self)
        if sink is not None:
            sink.body_ended()

    def _break(self, attempt: Attempt, error: Lost | Cut) -> None:
        self.give_up()
        attempt.fail(error)

    # The request's body.

    def _write_on(self) -> None:
        transport = self._transport
        assert transport is not None
        while (rest := self._rest) is not None and self._writable and not transport.is_closing():
            self._rest = rest[_PIECE:] if len(rest) > _PIECE else None
            transport.write(rest[:_PIECE])

    def _read_last(self, raw: socket.socket) -> None:
        """Writing failed because the engine has closed, maybe after an answer that waits to be read."""
        with contextlib.suppress(OSError):
            for _ in range(_LAST_READS):
                data = raw.recv(_READ, socket.MSG_DONTWAIT)
                if not data or self._attempt is None:
                    break
                self.data_received(data)
