"""One attempt at an engine: its answer is held until the first body byte, and what comes of it is judged.

On the request path. What no engine can have accepted is picked anew at no cost; everything else asks the retry budget.
An engine's own refusal is kept until something better arrives, so that a retry that isn't granted gives the client the
engine's answer, body included (RET-02). Every attempt is reported and counted once. Must not write to the client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mypy_extensions import mypyc_attr

from headrace_router.core.facts import Outcome
from headrace_router.core.retry import read_retry_after
from headrace_router.core.selection import Pick
from headrace_router.http1.response_head import ResponseHead
from headrace_router.proxy.refusals import Refusal
from headrace_router.telemetry import accounting
from headrace_router.upstream.port import Cut, Leg, Lost, NotSent, Sink

if TYPE_CHECKING:
    from headrace_router.proxy.relay import Relay
    from headrace_router.proxy.trying import Trying

log = logging.getLogger("headrace.router")

# 501 and 505 say what the engine can't do, not that it is ill; 508 that it is no engine, and each retry would go round.
_ILL: Final = frozenset(range(500, 600)) - {501, 503, 505, 508}
_FULL: Final = frozenset({429, 503})
_NO_SOCKETS: Final = Refusal(503, "router_overloaded", "the router has no sockets left", retry_after=1.0)


class Failed(NamedTuple):
    """An attempt without an answer to pass on. repick: no engine can have accepted it."""

    repick: bool
    refusal: Refusal


@mypyc_attr(free_list_len=1)
class Attempt(Sink):
    """Takes one answer in.

    relay: passes it on, once anything may be. kept: it is held until something better arrives; ``parts`` are the body
    pieces that came meanwhile, ``ended`` and ``error`` how it ended.
    """

    __slots__ = ("counted", "ended", "error", "exchange", "head", "kept", "leg", "parts", "pick", "relay")

    def __init__(self, exchange: Trying, pick: Pick) -> None:
        self.exchange = exchange
        self.pick = pick
        self.leg: Leg | None = None
        self.head: ResponseHead | None = None
        self.relay: Relay | None = None
        self.counted = False
        self.kept = False
        self.parts: Sequence[tuple[bytes, bytes]] = ()
        self.ended = False
        self.error: Cut | None = None

    def head_came(self, head: ResponseHead) -> None:
        """See Sink."""
        self.head = head
        if head.status >= 400:
            self.exchange.refusal_came(self, head.status)

    def body_came(self, raw: bytes, payload: bytes) -> None:
        """See Sink."""
        if self.relay is not None:
            self.relay.pass_on(raw, payload)
        elif self.kept:
            self.parts = (*self.parts, (raw, payload))
        else:
            self.exchange.answer_came(self, raw, payload)

    def chunk_came(self, raw: bytes, at: int) -> None:
        """See Sink."""
        relay = self.relay
        if relay is not None:
            relay.pass_chunk(raw, at)
        else:
            self.body_came(raw, raw[at:-2])

    def body_ended(self) -> None:
        """See Sink."""
        if self.kept:
            self.ended = True
            return
        if self.relay is None:
            self.exchange.answer_came(self, b"", b"")
        if self.relay is not None:
            self.relay.end()

    def attempt_failed(self, error: NotSent | Lost | Cut) -> None:
        """See Sink."""
        if self.relay is not None:
            self.relay.cut()
        elif self.kept:
            self.ended = True
            self.error = error if isinstance(error, Cut) else Cut(str(error))
        else:
            self.exchange.attempt_failed(self, error)

    def stop(self) -> None:
        """Close what is open to the engine and give the place back; harmless when both are done."""
        if self.leg is not None:
            self.leg.abort()
        self.pick.release()

    def report(self, outcome: Outcome, counted: str, retry_after: float | None = None) -> None:
        """Tell selection and account how it went, once."""
        if self.counted:
            return
        self.counted = True
        exchange, pick = self.exchange, self.pick
        means = exchange.means
        if means.selector.report(pick, outcome, means.time(), retry_after):
            log.warning("engine %s: %s is ejected after repeated failures", pick.engine, pick.url)
        exchange.account.attempted(pick, counted, 0 if self.head is None else self.head.status)


def worth_another(status: int, *, missed: bool) -> bool:
    """Full, ill, or (unless ``missed`` once) an address that answers for something else: 404 for its engine's model."""
    return status in _FULL or status in _ILL or (status == 404 and not missed)


def refused_by_engine(attempt: Attempt, status: int) -> Failed:
    """The engine's own refusal, which is kept."""
    if status in _FULL:
        assert attempt.head is not None
        told = attempt.head.get(b"retry-after")
        retry_after = read_retry_after(told.decode("latin-1") if told is not None else None, time.time())
        attempt.report(Outcome.FULL, accounting.FULL, retry_after)
    else:
        attempt.report(Outcome.ANSWERED if status == 404 else Outcome.ENGINE_ERROR, accounting.of_status(status))
    _tried(attempt)
    return Failed(False, engine_failed(attempt.pick, f"answered {status}"))


def failed(attempt: Attempt, error: NotSent | Lost | Cut) -> Failed:
    """What an attempt without an answer means for engine, budget and client."""
    pick = attempt.pick
    if isinstance(error, NotSent):
        return _not_sent(attempt, error)
    if isinstance(error, Lost) and error.reused:
        attempt.exchange.means.pool.renew(pick.engine)
        attempt.report(Outcome.REUSED_CLOSED, accounting.ENGINE_ERROR)
        return Failed(False, engine_failed(pick, "closed the connection"))
    attempt.report(Outcome.ENGINE_ERROR, accounting.ENGINE_ERROR)
    _tried(attempt)
    early = "before it answered" if isinstance(error, Lost) else "before the first byte of its answer"
    return Failed(False, engine_failed(pick, f"closed the connection {early}"))


def timed_out(attempt: Attempt, kind: str) -> Failed:
    """The first byte of a stream, or a whole unary answer, did not come in time. Closes the engine's connection."""
    if attempt.leg is not None:
        attempt.leg.abort()
    attempt.report(Outcome.TIMED_OUT, accounting.TIMEOUT)
    _tried(attempt)
    message = f"engine {attempt.pick.engine_name} sent nothing in time"
    return Failed(False, Refusal(504, f"{kind}_timeout", message))


def engine_failed(pick: Pick, what: str) -> Refusal:
    """502: the engine had the request and gave no whole answer."""
    return Refusal(502, "engine_failed", f"engine {pick.engine_name} {what}, and no retry was possible")


def _not_sent(attempt: Attempt, error: NotSent) -> Failed:
    if error.own:
        attempt.report(Outcome.CANCELLED, accounting.ROUTER_ERROR)
        return Failed(False, _NO_SOCKETS)
    attempt.report(Outcome.CONNECT_FAILED, accounting.UNREACHED)
    _tried(attempt)
    message = f"engine {attempt.pick.engine_name} can't be reached, and no other is left to try"
    return Failed(True, Refusal(502, "engine_unreachable", message))


def _tried(attempt: Attempt) -> None:
    request, pick = attempt.exchange.asked.facts, attempt.pick
    request.tried = (*request.tried, (pick.engine, pick.url))
