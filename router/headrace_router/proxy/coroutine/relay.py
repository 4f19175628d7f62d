"""Passes one engine's answer to the client, byte for byte, and ends it truly.

On the request path, after the first body byte: nothing can be retried any more (RET-04). A stream that is cut gets one
error event where that is possible and never a clean end; a client that has left ends the engine's work in the same
turn. Must not buffer: what the client hasn't taken holds up the reading from the engine, until the send limit.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from headrace_api import names
from headrace_api.table import TableTimeouts
from headrace_router.core.selection import Pick
from headrace_router.http1.headers import RawHeaders, is_event_stream, said, stream_hints, to_client, value_of
from headrace_router.proxy.coroutine.answer import Answer
from headrace_router.proxy.coroutine.watch import Expired, Watch
from headrace_router.proxy.refusals import cut_event
from headrace_router.telemetry import accounting
from headrace_router.telemetry.accounting import Account
from headrace_router.telemetry.sse import StreamObserver, UnaryObserver
from headrace_router.upstream.port import Cut, UpstreamResponse

log = logging.getLogger("headrace.router")

Observer = StreamObserver | UnaryObserver | None

_CUT_MESSAGES = {
    "idle": ("idle_timeout", "the engine sent nothing for too long; the answer is incomplete"),
    "first_byte": ("first_byte_timeout", "the engine sent nothing for too long"),
    "unary": ("unary_timeout", "the answer took too long; it is incomplete"),
    "shutdown": ("shutting_down", "the router is shutting down; the answer is incomplete"),
}
_OWN_FAULT = ("internal_error", "the router failed; the answer is incomplete")
_CUT = ("engine_cut", "the engine's answer broke off; it is incomplete")


@dataclass(slots=True)
class Arrived:
    """An engine's answer of which the first body bytes (b"": it has none) are here and nothing has been passed on."""

    pick: Pick
    response: UpstreamResponse
    first: bytes | None = None
    counted: bool = False

    def drop(self) -> None:
        """Close it unused."""
        self.response.abort()
        self.pick.release()


@dataclass(slots=True)
class Exchange:
    """What relaying needs of the request."""

    answer: Answer
    account: Account
    watch: Watch
    loop: asyncio.AbstractEventLoop
    request_id: str
    stream: bool
    anthropic: bool
    timeouts: TableTimeouts
    unary_until: float = 0.0

    def arm(self, kind: str, seconds: float) -> None:
        """Arm the watch; a unary answer's own limit ends it if it is nearer."""
        if self.unary_until:
            left = max(self.unary_until - self.loop.time(), 1e-3)
            if not seconds or left < seconds:
                kind, seconds = "unary", left
        self.watch.arm(kind, seconds)


async def relay(exchange: Exchange, arrived: Arrived) -> None:
    """Relay an answer to its end.

    Raises:
        CancelledError: the client has left; the engine's connection is closed.
    """
    response, pick, account, answer = arrived.response, arrived.pick, exchange.account, exchange.answer
    sse = is_event_stream(response.headers)
    good = response.status < 400
    observer = _observer(response.headers, sse) if good else None
    outcome = accounting.CLIENT_GONE
    try:
        with exchange.watch:
            await _pass_on(exchange, arrived, observer, sse)
        outcome = accounting.of_status(response.status)
        if isinstance(observer, StreamObserver):
            observer.end()
        if good:
            account.answered(pick, observer)
    except Cut:
        outcome = accounting.CUT
        answer.fail(cut_event(*_CUT, anthropic=exchange.anthropic) if sse else None)
    except Expired as expired:
        outcome = accounting.SHUTDOWN if expired.kind == "shutdown" else accounting.TIMEOUT
        if expired.kind == "send":
            outcome = accounting.CLIENT_GONE
            answer.abort()
        else:
            event = cut_event(*_CUT_MESSAGES[expired.kind], anthropic=exchange.anthropic)
            answer.fail(event if sse else None)
    except ConnectionError:
        answer.abort()
    except Exception:
        outcome = accounting.ROUTER_ERROR
        log.exception("relaying an answer failed")
        answer.fail(cut_event(*_OWN_FAULT, anthropic=exchange.anthropic) if sse else None)
    finally:
        response.abort()
        pick.release()
        if not arrived.counted:
            account.attempted(pick, outcome)
        if good and outcome != accounting.OK:
            account.broken_off(observer)


async def _pass_on(exchange: Exchange, arrived: Arrived, observer: Observer, sse: bool) -> None:
    response, answer, timeouts = arrived.response, exchange.answer, exchange.timeouts
    exchange.arm("idle", timeouts.idle)
    data = await response.read() if arrived.first is None else arrived.first
    answer.begin(response.status, response.reason, head_of(exchange, arrived, sse), response.length)
    started = not isinstance(observer, StreamObserver)
    while data:
        exchange.arm("send", timeouts.send)
        await answer.write(data)
        if observer is not None and observer.feed(data) and not started:
            started = True
            exchange.account.first_token(arrived.pick)
        exchange.arm("idle", timeouts.idle)
        data = await response.read()
    exchange.arm("send", timeouts.send)
    await answer.end()


def head_of(exchange: Exchange, arrived: Arrived, sse: bool) -> list[tuple[bytes, bytes]]:
    """Header lines of the answer: the engine's, and where it came from."""
    headers = to_client(arrived.response.headers)
    if sse:
        headers += stream_hints(headers)
    pick = arrived.pick
    headers += [
        said(names.HEADER_ENGINE, pick.engine_name),
        said(names.HEADER_REASON, pick.reason),
        said(names.HEADER_TABLE, str(pick.revision)),
        said(names.HEADER_ATTEMPTS, str(exchange.account.attempts)),
        said(names.HEADER_REQUEST_ID, exchange.request_id),
    ]
    return headers


def _observer(headers: RawHeaders, sse: bool) -> Observer:
    if sse:
        return StreamObserver()
    coding = (value_of(headers, b"content-encoding") or b"identity").strip().lower()
    kind = (value_of(headers, b"content-type") or b"").split(b";")[0].strip().lower()
    return UnaryObserver() if coding == b"identity" and kind == b"application/json" else None
