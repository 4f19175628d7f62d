"""Passes one engine's answer to the client, byte for byte, and ends it truly.

On the request path, after the first body byte: nothing can be retried any more (RET-04). A stream that is cut gets one
error event where that is possible and never a clean end; a client that has left ends the engine's work in the same
turn. Must not buffer: what the client hasn't taken holds up the reading from the engine, until the send limit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from headrace_router.http1.header_rules import head_to_client, is_event_stream
from headrace_router.http1.lines import ENCODED, EVENT_STREAM, JSON
from headrace_router.proxy.refusals import cut_event
from headrace_router.telemetry import accounting
from headrace_router.telemetry.sse import StreamObserver
from headrace_router.telemetry.unary import UnaryObserver

if TYPE_CHECKING:
    from headrace_router.proxy.attempts import Attempt
    from headrace_router.proxy.exchange import Exchange

log = logging.getLogger("headrace.router")

Observer = StreamObserver | UnaryObserver | None

_NOT_COUNTED: Final = "an answer could not be counted"
_NOT_RELAYED: Final = "relaying an answer failed"
_CUT: Final = ("engine_cut", "the engine's answer broke off; it is incomplete")
_OWN_FAULT: Final = ("internal_error", "the router failed; the answer is incomplete")
_EXPIRED: Final = {
    "idle": ("idle_timeout", "the engine sent nothing for too long; the answer is incomplete"),
    "unary": ("unary_timeout", "the answer took too long; it is incomplete"),
    "shutdown": ("shutting_down", "the router is shutting down; the answer is incomplete"),
}


@mypyc_attr(free_list_len=1)
class Relay:
    """One answer on its way. Each of its ends tells the exchange, once."""

    __slots__ = ("_answer", "_attempt", "_events", "_exchange", "_observer", "_over", "_sse", "_started", "_status")

    def __init__(self, exchange: Exchange, attempt: Attempt) -> None:
        head = attempt.head
        assert head is not None
        self._exchange = exchange
        self._attempt = attempt
        self._answer = exchange.client.answer
        self._over = False
        self._status = head.status
        rules = head.rules
        self._sse = sse = bool(rules & EVENT_STREAM) and is_event_stream(head.marked)
        # Whether the first token was seen, where there is one to see.
        self._started = True
        self._observer: Observer = None
        self._events: StreamObserver | None = None
        if head.status < 400:
            if sse:
                self._observer = self._events = StreamObserver()
                self._started = False
            elif rules & JSON and not rules & ENCODED:
                self._observer = UnaryObserver()
        said = exchange.means.current.said(attempt.pick, exchange.account.attempts)
        lines = head_to_client(head, said, exchange.request_id, sse=sse)
        self._answer.begin(head.status, head.reason, lines, head.length, chunked=head.chunked)

    def pass_on(self, raw: bytes, payload: bytes) -> None:
        """Body bytes came; see Sink."""
        try:
            self._answer.put(raw, payload)
            if self._observer is not None and self._observer.feed(payload) and not self._started:
                self._first_token()
        except ConnectionError:
            self.client_gone()
        except Exception:
            log.exception(_NOT_RELAYED)
            self._own_fault()
        self._exchange.touched = True

    def pass_chunk(self, raw: bytes, at: int) -> None:
        """One whole chunk came; see Sink."""
        observer = self._events
        if observer is None:
            self.pass_on(raw, raw[at:-2])
            return
        try:
            self._answer.put_chunk(raw, at)
            if not observer.usual(raw, at) and observer.feed(raw[at:-2]) and not self._started:
                self._first_token()
        except ConnectionError:
            self.client_gone()
        except Exception:
            log.exception(_NOT_RELAYED)
            self._own_fault()
        self._exchange.touched = True

    def end(self) -> None:
        """The body is complete."""
        if self._over:
            return
        status = self._status
        try:
            self._answer.end()
        except ConnectionError:
            self.client_gone()
            return
        try:
            if status < 400:
                if self._events is not None:
                    self._events.end()
                self._exchange.account.answered(self._attempt.pick, self._observer)
        except Exception:
            # The client has its answer; a second end would be garbage behind the first.
            log.exception(_NOT_COUNTED)
        self._close(accounting.OK if status < 400 else accounting.of_status(status))
        self._exchange.relay_ended()

    def cut(self) -> None:
        """The engine's answer broke off."""
        self._break_off(accounting.CUT, _CUT)

    def give_up(self, kind: str) -> None:
        """A limit in time was reached, or the router ends."""
        if kind == "send":
            self._answer.abort()
            self.client_gone()
        else:
            self._break_off(accounting.SHUTDOWN if kind == "shutdown" else accounting.TIMEOUT, _EXPIRED[kind])

    def client_gone(self) -> None:
        """The client has left, or takes nothing any more: end the engine's work now."""
        if self._over:
            return
        self._answer.leave()
        self._close(accounting.CLIENT_GONE)
        self._exchange.relay_failed()

    def _first_token(self) -> None:
        self._started = True
        self._exchange.account.first_token(self._attempt.pick)

    def _own_fault(self) -> None:
        self._break_off(accounting.ROUTER_ERROR, _OWN_FAULT)

    def _break_off(self, outcome: str, words: tuple[str, str]) -> None:
        if self._over:
            return
        event = cut_event(*words, anthropic=self._exchange.anthropic) if self._sse else None
        leg = self._attempt.leg
        try:
            self._answer.fail(event, at_boundary=leg is not None and leg.at_boundary())
        except ConnectionError:
            self._answer.abort()
        self._close(outcome)
        self._exchange.relay_failed()

    def _close(self, outcome: str) -> None:
        """Nothing is passed on any more: the engine's connection, its place and the account are settled."""
        self._over = True
        attempt = self._attempt
        if outcome is accounting.OK:
            attempt.pick.release()
        else:
            attempt.stop()
        try:
            if not attempt.counted:
                attempt.counted = True
                self._exchange.account.attempted(attempt.pick, outcome, self._status)
            if outcome is not accounting.OK and self._status < 400:
                self._exchange.account.broken_off(self._observer)
        except Exception:
            log.exception(_NOT_COUNTED)
