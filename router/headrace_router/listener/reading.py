"""What a client sends, taken apart: strict heads, bodies within bounds, one message after the other.

On the request path, the hot one: no task, no future and no timer a request. What is ambiguous is refused and the
connection closed, so that no second reading of its bytes reaches an engine. Must not decide anything about routing.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, Final

from headrace_router.http1.chunked import BrokenChunks
from headrace_router.http1.request_head import BadHead, RequestHead, RequestHeads, find_end, refuse_early
from headrace_router.listener.aiohttp_side import Taking
from headrace_router.outbox import Writer
from headrace_router.proxy import refusals
from headrace_router.proxy.answer import Answer
from headrace_router.proxy.exchange import Client
from headrace_router.proxy.intake import too_large
from headrace_router.proxy.refusals import Refusal

if TYPE_CHECKING:
    from headrace_router.listener.listener import Listener

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# What a connection is doing.
HEAD: Final = 0  # waits for a head, or has a part of one
BODY: Final = 1  # collects the body of a hot request
TAKING: Final = 2  # the aiohttp side takes a message in
RUNNING: Final = 3  # an exchange runs
LINGERING: Final = 4  # answered for the last time; reads on so that the client sees it
CLOSING: Final = 5  # the last bytes leave
CLOSED: Final = 6
SKIPPING: Final = 7  # answered without its body, whose bytes come and are dropped; then waits for a head

# Messages that one connection may have answered in a turn of the loop, before the others have theirs.
MOST_AT_ONCE: Final = 32
# Bytes of a chunked body after which the others have their turn: tens of thousands of chunks fit into one read, and a
# loop takes dozens of full reads of one connection in a row.
CHUNKS_AT_ONCE: Final = 32 * 1024
# Bytes of a body that are dropped so that the connection can go on after a refusal.
MOST_SKIPPED: Final = 64 * 1024


class Reading(Client):
    """The reading side of a connection; what becomes of a message is its subclass's."""

    __slots__ = (
        "_began",
        "_body",
        "_came",
        "_fell",
        "_fell_at",
        "_head",
        "_heads",
        "_held",
        "_last",
        "_late",
        "_limit",
        "_listener",
        "_missing",
        "_paid",
        "_pending",
        "_scanned",
        "_state",
        "_taken",
        "_taking",
        "_unsure",
        "deadline",
        "served",
        "touched",
        "transport",
        "writer",
        "writing_paused",
    )

    transport: asyncio.Transport
    writer: Writer

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._state = HEAD
        self._pending: bytearray | None = None
        self._scanned = 0
        self._held = False  # nothing is read: what came waits for its turn, or for the client to take its answers
        self._heads = RequestHeads()
        self._head: RequestHead | None = None
        self._body: list[bytes] | None = None
        self._missing = 0  # bytes of a body by Content-Length
        self._limit = 0  # bytes that the body may have
        self._taken = 0  # bytes of it that count in the proxy's memory
        self._paid = 0  # and those of them that were counted as time
        self._began = 0.0  # when the head did of which a part is there
        self._came = 0.0  # when the last of these came
        self._fell = 0.0  # since when the body is behind
        self._fell_at = 0  # and how many of its bytes were counted by then
        self._late = False  # the body's time is over, unless what comes until the next sweep is worth some
        self._taking: Taking | None = None
        self._last = False  # closes after this request
        self._unsure = False  # there is or was input that no one reads
        self.began = 0.0
        self.served = 0
        self.deadline = 0.0
        self.touched = False
        self.writing_paused = False  # the client takes less than it is given

    @abstractmethod
    def _run(self, body: bytes, rest: bytes) -> bytes:
        """Hand the request over; returns what is to be read next, ``rest`` or nothing."""

    @abstractmethod
    def _refuse(self, refusal: Refusal, *, whole: bool) -> bool:
        """Answer instead of serving; whether another request may follow. ``whole``: all its bytes have come."""

    @abstractmethod
    def _pipeline(self, data: bytes) -> None:
        """Keep what comes behind a request."""

    @abstractmethod
    def _idles(self, *, anew: bool = True) -> None:
        """It waits for a head, and has nothing of one. ``anew``: it didn't before."""

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        state = self._state
        if state == HEAD:
            if self._held:
                self._wait(data)
            elif self._pending is None:
                self._read(data)
            else:
                self._pending += data
                self._read_pending()
        elif state == BODY:
            self._more_body(data)
        elif state == RUNNING:
            self._pipeline(data)
        elif state == TAKING:
            self._take(data)
        elif state == SKIPPING:
            self._skip(data)

    # Heads

    def _read(self, data: bytes) -> None:
        """Messages out of ``data`` until one runs, more must come, or it is the others' turn."""
        turns = MOST_AT_ONCE
        while data:
            if self._held:
                self._wait(data)
                return
            end = self._heads.find_end(data)
            if end < 0:
                self._keep(data)
                return
            if not turns:
                self._wait(data)
                self._stop_reading()
                self._listener.loop.call_soon(self._read_on)
                return
            turns -= 1
            data = self._message(data, end)

    def _stop_reading(self) -> None:
        """Read nothing for now. No request runs whose client could leave unseen."""
        self._held = True
        self.transport.pause_reading()

    def _read_on(self) -> None:
        """It is this connection's turn again, or its client takes its answers again."""
        if self._held and self._state in (HEAD, SKIPPING) and not self.writing_paused:
            self._held = False
            self.transport.resume_reading()
            self._resume()

    def _resume(self) -> None:
        """Read on with what came behind the last request."""
        pending = self._pending
        if self._state == HEAD and pending is not None and not self._held:
            self._pending = None
            self._read(bytes(pending))

    def _wait(self, data: bytes) -> None:
        """Keep what is read later."""
        if self._pending is None:
            self._pending = bytearray()
            self._scanned = 0
        self._pending += data

    def _read_pending(self) -> None:
        pending = self._pending
        assert pending is not None
        if find_end(pending, self._scanned) < 0:
            self._look_at_part(pending)
        else:
            self._pending = None
            self._read(bytes(pending))

    def _keep(self, data: bytes) -> None:
        """Keep the beginning of a head."""
        if data == b"\r\n":  # some clients send one behind a body (RFC 9112 2.2)
            self._idles(anew=False)
            return
        self._pending = bytearray(data)
        self._scanned = 0
        self._began = self._now()
        until = self._began + self._listener.limits.head_seconds
        self.deadline = until if self.served else min(until, self.deadline)
        self._look_at_part(self._pending)

    def _look_at_part(self, pending: bytearray) -> None:
        """What can't become a head is refused at once."""
        bad, most = refuse_early(pending, self._scanned), self._listener.limits.head_bytes
        if bad is not None:
            self._refuse_head(refusals.of_bad_head(bad))
        elif len(pending) > most:
            self._refuse_head(refusals.head_too_large(most))
        else:
            self._scanned = max(0, len(pending) - 3)

    def _message(self, data: bytes, end: int) -> bytes:
        """Begin with the message whose head ends at ``end``; returns what is to be read next."""
        limits = self._listener.limits
        head = self._heads.parse(data[:end])
        if isinstance(head, BadHead):
            self._refuse_head(refusals.of_bad_head(head))
            return b""
        if end > limits.head_bytes or head.count > limits.head_lines:
            self._refuse_head(refusals.over_limits(end, limits.head_bytes, limits.head_lines))
            return b""
        proxy = self._listener.proxy
        self.served += 1
        self.began = monotonic()
        self._head = head
        self.answer = Answer(
            self.writer,
            old=head.minor == 0,
            keep_alive=head.keep_alive and not self._last and not proxy.draining,
            bodiless=head.method == "HEAD",
        )
        limit = proxy.body_limit(head)
        length = head.length or 0
        have = len(data) - end
        if isinstance(limit, Refusal):
            return self._refuse_by_head(head, limit, data[end:])
        self._limit = limit
        if (
            head.length is None
            or head.expects
            or head.upgrade
            or head.minor == 0
            or head.method != "POST"
            or not self._listener.hot
        ):
            self._take_by_aiohttp(head, data, end)
            return b""
        if have < length:
            self._body = []
            self._missing = length
            self._await_body(BODY)
            self._more_body(data[end:])
            return b""
        if not self._hold(length):
            return data[end + length :] if self._refuse(refusals.TOO_MUCH, whole=True) else b""
        return self._run(data[end : end + length], data[end + length :] if have > length else b"")

    def _refuse_by_head(self, head: RequestHead, refusal: Refusal, data: bytes) -> bytes:
        """Answer before the body is read; returns what is to be read next."""
        length = head.length or 0
        missing = length - len(data)
        skip = not head.chunked and not head.expects and missing <= MOST_SKIPPED
        self._unsure = missing > 0
        if not self._refuse(refusal, whole=skip):
            return b""
        self._unsure = False
        if missing <= 0:
            return data[length:]
        self._state = SKIPPING
        self._missing = missing
        self.deadline = self._now() + self._listener.limits.lingering
        return b""

    def _skip(self, data: bytes) -> None:
        """Drop the rest of a body that nobody wants."""
        rest = data[self._missing :]
        self._missing -= len(data) - len(rest)
        if not self._missing:
            self._state = HEAD
            self.deadline = self._now() + self._listener.limits.idle
            self._idles()
            self._read(rest)

    # Bodies

    def _await_body(self, state: int) -> None:
        """Its time begins."""
        self._state = state
        self._came = self._fell = self._now()
        self._paid = self._fell_at = 0
        self._late = False
        self.deadline = self._came + self._listener.limits.body_idle

    def _hold(self, size: int) -> bool:
        """Count bytes of a body in the memory of all."""
        if self._listener.proxy.memory.take(size):
            self._taken += size
            return True
        return False

    def _more_body(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        self.touched = not self._late
        rest = b""
        if len(data) >= self._missing:
            data, rest = data[: self._missing], data[self._missing :]
        if not self._hold(len(data)):
            self._refuse(refusals.TOO_MUCH, whole=False)
            return
        if data:
            body.append(data)
        self._missing -= len(data)
        if self._missing:
            return
        self._body = None
        self._read(self._run(b"".join(body), rest))

    def _take_by_aiohttp(self, head: RequestHead, data: bytes, end: int) -> None:
        """Everything that isn't hot: aiohttp's handler gets this one message and gives back its body."""
        self._await_body(TAKING)
        self._missing = head.length or 0
        self._taking = taking = self._listener.side.open(self, head)
        self._take(data[end:])
        if head.expects and self._state == TAKING and not taking.whole:
            self.writer.write(CONTINUE)

    def _take(self, data: bytes) -> None:
        """Bytes of the message that aiohttp takes in; what is behind its end waits."""
        taking = self._taking
        assert taking is not None
        self.touched = not self._late
        if taking.whole:
            self._pipeline(data)
            return
        raw, size, whole, rest = data, len(data), False, b""
        if taking.chunks is not None:
            if size > CHUNKS_AT_ONCE:
                self.transport.pause_reading()
                self._listener.loop.call_soon(self._read_again)
            try:
                raw, payload = taking.chunks.feed(data)
            except BrokenChunks:
                self._refuse(refusals.BAD_FRAMING, whole=False)
                return
            size, whole, rest = len(payload), taking.chunks.ended, taking.chunks.rest
        else:
            raw, rest = data[: self._missing], data[self._missing :]
            size = len(raw)
            self._missing -= size
            whole = not self._missing
        if self._taken + size > self._limit:
            self._refuse(too_large(self._limit), whole=False)
        elif not self._hold(size):
            self._refuse(refusals.TOO_MUCH, whole=False)
        else:
            taking.feed(raw, whole=whole)
            if rest:
                self._pipeline(rest)

    def _read_again(self) -> None:
        """The others had their turn."""
        if not self._held and not self.writer.is_closing():
            self.transport.resume_reading()

    def taken_in(self, body: bytes) -> None:
        """The aiohttp side has the whole body."""
        self._taking = None
        if self._state == TAKING:
            self._run(body, b"")
            self._resume()

    def not_taken_in(self) -> None:
        """The aiohttp side would not have the message."""
        self._taking = None
        if self._state == TAKING:
            self._refuse(refusals.BAD_FRAMING, whole=False)

    def _refuse_head(self, refusal: Refusal) -> None:
        """A head that is none: nobody can tell where the next message begins."""
        self._head = None
        self.began = monotonic()
        self.answer = Answer(self.writer, old=False, keep_alive=False, bodiless=False)
        self._refuse(refusal, whole=False)

    def _now(self) -> float:
        return self._listener.loop.time()
