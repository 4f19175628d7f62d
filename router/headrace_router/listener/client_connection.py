"""One client connection: one request after the other, and the client's leaving.

On the request path. Reading is never paused while a request runs, or the client's leaving would go unseen; it reaches
the exchange in the same loop turn, end of input after the request counting as leaving. After a refusal that didn't wait
for all of a message the connection reads on for a while, so that the client gets to see it. Must not decide anything
about routing.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from headrace_router.listener.reading import (
    BODY,
    CLOSED,
    CLOSING,
    HEAD,
    LINGERING,
    RUNNING,
    SKIPPING,
    TAKING,
    Reading,
)
from headrace_router.listener.sockets import address_of, unread
from headrace_router.outbox import Writer
from headrace_router.proxy import refusals
from headrace_router.proxy.answer import Answer
from headrace_router.proxy.refusals import Refusal

if TYPE_CHECKING:
    from headrace_router.listener.listener import Listener
    from headrace_router.proxy.exchange import Exchange

log = logging.getLogger("headrace.router")

# Bytes that a client may be behind before its engine isn't read any more.
WRITTEN_AHEAD: Final = 64 * 1024
# Seconds that a client may take for the last bytes of an answer after which its connection closes.
FLUSHING: Final = 60.0
# The same for a client that is turned away because there are too many, or idle and closed for another.
TURNED_AWAY: Final = 1.0
# Seconds that a new connection has for its first byte, whoever else wants its place.
FIRST_BYTE: Final = 1.0
# And from its first byte for its first head: longer than a lost packet takes to come again.
FIRST_HEAD: Final = 5.0

TOO_MANY_CONNECTIONS: Final = Refusal(
    503, "too_many_connections", "this router has as many connections as it may have", retry_after=1.0
)


class ClientConnection(Reading):
    """See the module. Made by the Listener for each connection; it is the ``Client`` of its exchanges."""

    __slots__ = ("_acknowledged", "_exchange")

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._exchange: Exchange | None = None
        self._acknowledged = 0
        self.peer: str | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast(asyncio.Transport, transport)
        self.writer = Writer(self._listener.outbox, self.transport)
        # TLS's own bound is eight times as high, and each slow client's answer would be read ahead as far.
        self.transport.set_write_buffer_limits(WRITTEN_AHEAD)
        name = transport.get_extra_info("peername")
        self.peer = address_of(name)
        self.deadline = self._now() + self._listener.limits.first_request
        if not self._listener.admit(self):
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See asyncio.Protocol. The exchange hears of it in this very turn."""
        self._state = CLOSED
        self.writer.ended = True
        self._listener.lost(self)
        self._give_up()
        self._pending = None

    def eof_received(self) -> None:
        """A client that will send nothing more has left; what it was sent already still flushes."""
        if self._state != LINGERING:
            self._state = CLOSING
            self.deadline = self._now() + FLUSHING
        self._give_up()

    def pause_writing(self) -> None:
        """The client takes less than its engine gives."""
        self.writing_paused = True
        if self._exchange is not None:
            self._exchange.client_paused()
        elif self._state == HEAD and not self._held:
            self._hold_back()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self.writing_paused = False
        if self._exchange is not None:
            self._exchange.client_resumed()
        elif self._held:
            limits = self._listener.limits
            self.deadline = self._now() + (limits.idle if self._state == HEAD else limits.lingering)
            self._read_on()

    # The exchange's side

    def exchange_done(self) -> None:
        """The exchange has ended: the next request, or the end."""
        self._exchange = None
        if self._state == RUNNING and self._answered() and self._pending is not None:
            # Not in this very turn: the exchange is still on the stack.
            self._listener.loop.call_soon(self._resume)

    # The listener's side

    @property
    def busy(self) -> bool:
        """Whether a request has begun that isn't answered yet."""
        if self._state == HEAD:
            return self._pending is not None or unread(self.transport)
        return self._state <= RUNNING

    @property
    def idle(self) -> bool:
        """Whether it was used and waits for another request."""
        return self._state == HEAD and self.served > 0 and not self.busy

    @property
    def waits(self) -> bool:
        """Whether it waits for a head and has nothing of one."""
        return self._state == HEAD and self._pending is None and not self.writer.is_closing()

    @property
    def since(self) -> float:
        """When it began to wait, or its head did, for one that waits or begins."""
        if self._pending is not None:
            return self._began
        limits = self._listener.limits
        return self.deadline - (limits.idle if self.served else limits.first_request)

    @property
    def begins(self) -> bool:
        """Whether it has a part of its first head."""
        return self._state == HEAD and self._pending is not None and not self.served and not self.writer.is_closing()

    def spare(self, now: float) -> bool:
        """Whether it had its time and nothing of a request or an answer is on its way, for one that waits or begins."""
        if not self.served and now - self.since < (FIRST_BYTE if self._pending is None else FIRST_HEAD):
            return False
        return not self.writer.get_write_buffer_size() and not unread(self.transport)

    def give_way(self) -> None:
        """Close it for another: idle, or with a part of a head, whose client is told. Over TLS the client has a moment
        to answer that."""
        if self._pending is None:
            self.close()
        else:
            self._refuse_head(TOO_MANY_CONNECTIONS)
        self.deadline = self._now() + TURNED_AWAY

    def last(self) -> None:
        """Close after the request that runs or comes next."""
        self._last = True
        self.say_close()

    def say_close(self) -> None:
        """If the running answer's head isn't out, it tells the client that the connection closes."""
        if BODY <= self._state <= RUNNING and not self.answer.sent:
            self.answer.keep_alive = False

    def end(self, refusal: Refusal) -> None:
        """A request that is still being read will not be served any more."""
        if self._state in (BODY, TAKING):
            self._refuse(refusal, whole=False)

    def close(self) -> None:
        """Close when what was written has left."""
        if self._state not in (LINGERING, CLOSED):
            self._state = CLOSING
            self.deadline = self._now() + FLUSHING
            self._give_up()
        self.writer.close()

    def abort(self) -> None:
        """Close at once."""
        self.writer.abort()

    def rearm(self, now: float) -> None:
        """Bytes of a body have come."""
        if self._state in (BODY, TAKING):
            self._late = not self._in_time(now)

    def expired(self) -> None:
        """The deadline has passed."""
        if self._late:
            self._late = False
            # What came since then counts, too.
            if self._state in (BODY, TAKING) and self._in_time(self._now()):
                return
        self.deadline = 0.0
        state = self._state
        if self._takes_on():
            self.deadline = self._now() + FLUSHING
        elif state == HEAD:
            if self.writing_paused:
                self.writer.abort()
            elif self._pending is None:
                self.close()
            else:
                self._refuse_head(refusals.HEAD_TIMEOUT)
        elif state in (BODY, TAKING):
            self._refuse(self._why_late(self._now()), whole=False)
        elif state in (LINGERING, CLOSING, SKIPPING):
            self.writer.abort()

    def _in_time(self, now: float) -> bool:
        """Give a body the time that its bytes are worth; whether there is some left."""
        came = self._taken - self._paid
        if came:
            self._paid = self._taken
            self._came = now
            limits = self._listener.limits
            self.deadline = limits.body_deadline(self.deadline, now, came)
            if self.deadline >= now + limits.body_idle:
                self._fell = now
                self._fell_at = self._paid
        return self.deadline > now

    def _why_late(self, now: float) -> Refusal:
        """What became of a body whose time is over: it stopped, or came too slowly ever since it was in time."""
        limits = self._listener.limits
        silent = now - self._came
        if 2 * silent >= limits.body_idle:
            return refusals.body_stopped(silent)
        return refusals.body_too_slow((self._paid - self._fell_at) / (now - self._fell), limits.body_rate)

    def _takes_on(self) -> bool:
        """Whether the client has last bytes still to take, and is taking them."""
        if not self.writer.get_write_buffer_size() or not (self.writing_paused or self._state in (CLOSING, LINGERING)):
            return False
        before, self._acknowledged = self._acknowledged, self.answer.taken()
        return self._acknowledged > before

    # Requests

    def _run(self, body: bytes, rest: bytes) -> bytes:
        """Hand the request over; returns what is to be read next, ``rest`` or nothing."""
        head, self._head = self._head, None
        assert head is not None
        self._state = RUNNING
        self.deadline = 0.0
        self._taken = 0
        try:
            exchange = self._listener.proxy.begin(head, body, self)
        except Exception:
            log.exception("a request could not be begun")
            self.writer.abort()
            return b""
        if exchange is None:
            return rest if self._answered() else b""
        self._exchange = exchange
        if self.writing_paused:
            exchange.client_paused()
        if rest:
            self._pipeline(rest)
        return b""

    def _pipeline(self, data: bytes) -> None:
        """What comes behind a request waits for its answer, up to a bound; then nothing more is read of it."""
        if self._unsure:
            return
        self._wait(data)
        assert self._pending is not None
        if len(self._pending) > self._listener.limits.pipelined:
            self._pending = None
            self._unsure = True
            self.last()

    def _answered(self) -> bool:
        """The answer has ended; whether another request may follow."""
        answer = self.answer
        if answer.complete and answer.keep_alive and not self._last and not self.writer.is_closing():
            self._state = HEAD
            self.deadline = self._now() + self._listener.limits.idle
            if self.writing_paused:
                self._hold_back()
            self._idles()
            return True
        self._finish()
        return False

    def _hold_back(self) -> None:
        """Read no more until the client takes its answers: they would pile up as fast as they can be asked for."""
        self.deadline = self._now() + FLUSHING
        self._stop_reading()

    def _finish(self) -> None:
        """Close after the last answer, in steps: with input unread the client might lose it (RFC 9112 9.6)."""
        writer = self.writer
        unsure = self._unsure or self._pending is not None
        self._pending = None
        if self.answer.complete and not writer.is_closing() and (unsure or writer.can_write_eof()):
            self._linger(self._listener.limits.lingering)
        else:
            self._state = CLOSING
            self.deadline = self._now() + FLUSHING
            writer.close()

    def _linger(self, seconds: float) -> None:
        """Say that nothing more comes, and read on without a use for it until the client closes too."""
        writer = self.writer
        writer.flush()
        self._state = LINGERING
        self._pending = None
        self.deadline = self._now() + (FLUSHING if writer.get_write_buffer_size() else seconds)
        if writer.can_write_eof():
            writer.write_eof()

    def _idles(self, *, anew: bool = True) -> None:
        self._listener.idles(self, anew=anew)

    # Refusals

    def _refuse(self, refusal: Refusal, *, whole: bool) -> bool:
        """Answer instead of serving; whether another request may follow. ``whole``: all its bytes have come."""
        head, self._head = self._head, None
        if not whole:
            self._unsure = True
            self.answer.keep_alive = False
        self._pending = None
        self._state = RUNNING
        self._give_up()
        self._listener.proxy.refuse(head, refusal, self)
        return self._answered()

    def _turn_away(self) -> None:
        self.began = monotonic()
        self.answer = Answer(self.writer, old=False, keep_alive=False, bodiless=False)
        self._listener.proxy.refuse(None, TOO_MANY_CONNECTIONS, self)
        self._linger(TURNED_AWAY)

    def _give_up(self) -> None:
        """Let go of whatever was under way, and tell the exchange."""
        self._body = self._head = None
        if self._taken:
            self._listener.proxy.memory.give(self._taken)
            self._taken = 0
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.drop()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()
