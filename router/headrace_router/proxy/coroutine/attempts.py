"""The attempts of one request, until an answer's first body byte is here or nothing more may be tried.

On the request path. What no engine can have accepted is picked anew at no cost; everything else asks the retry budget.
An engine's own refusal is kept until something better arrives, so that a retry that isn't granted gives the client the
engine's answer, body included (RET-02). An attempt is closed upstream before the next one starts. Must not write to the
client.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from headrace_api.table import TableTimeouts
from headrace_router.core import facts
from headrace_router.core.body import replace_model
from headrace_router.core.facts import Outcome, RefusalKind
from headrace_router.core.retry import Retry, decide_retry, read_retry_after
from headrace_router.core.selection import Pick, Selector
from headrace_router.http1.headers import to_engine, value_of
from headrace_router.proxy.coroutine.intake import Asked
from headrace_router.proxy.coroutine.relay import Arrived, Exchange
from headrace_router.proxy.coroutine.waiting import Waiting
from headrace_router.proxy.coroutine.watch import Expired
from headrace_router.proxy.refusals import Refusal, not_picked
from headrace_router.telemetry import accounting
from headrace_router.upstream.credentials import EngineCredentials, ca_of
from headrace_router.upstream.port import Address, Cut, Lost, NotSent, Upstream, UpstreamRequest

log = logging.getLogger("headrace.router")

# 501 and 505 say what the engine can't do, not that it is ill; 508 that it is no engine, and each retry would go round.
_ILL: Final = frozenset(range(500, 600)) - {501, 503, 505, 508}
_FULL: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt without an answer to pass on. ``kept``: the engine's own answer, if it gave one."""

    outcome: Outcome
    repick: bool
    refusal: Refusal
    kept: Arrived | None = None


class Attempts:
    """Runs the attempts of one request; ``close`` gives back whatever is still held."""

    def __init__(
        self,
        selector: Selector,
        upstream: Upstream,
        waiting: Waiting,
        asked: Asked,
        exchange: Exchange,
        *,
        method: str,
        headers: list[tuple[bytes, bytes]],
        peer: str | None,
        credentials: EngineCredentials | None = None,
        own_keys: bool = False,
    ) -> None:
        self._credentials = credentials
        self._own_keys = own_keys
        self._selector = selector
        self._upstream = upstream
        self._waiting = waiting
        self._asked = asked
        self._exchange = exchange
        self._method = method
        keep = frozenset({asked.policy.table.priority_header.lower().encode("latin-1")})
        self._headers = to_engine(headers, peer=peer, request_id=exchange.request_id, keep=keep)
        self._request = asked.facts
        self._replayable = len(asked.body) <= asked.policy.table.limits.retry_body
        self._pick: Pick | None = None
        self._kept: Arrived | None = None
        self._missed = False

    async def run(self) -> Arrived | Refusal:
        """The answer to relay, or the refusal to give.

        Raises:
            CancelledError: the client has left. Expired: the router shuts down.
        """
        policy, account = self._asked.policy, self._exchange.account
        picked = await self._first_pick()
        if isinstance(picked, facts.Refusal):
            if picked.kind in (RefusalKind.SHED, RefusalKind.FULL):
                account.shed(picked.code)
            return not_picked(picked)
        policy.budget.deposit(self._exchange.loop.time())
        while True:
            self._pick = picked
            result = await self._attempt(picked)
            if isinstance(result, Arrived):
                self._let_go()
                return result
            if result.kept is not None:
                self._keep(result.kept)
            else:
                picked.release()
                self._waiting.wake()
            self._pick = None
            following = await self._next(result)
            if not isinstance(following, Pick):
                return self._take_kept() or following
            picked = following

    def forget_body(self) -> None:
        """Nothing will be sent again: a body of many MiB must not live as long as the stream."""
        self._asked.body = b""

    def close(self) -> None:
        """Give back what is held; harmless when nothing is."""
        if self._pick is not None:
            self._pick.release()
            self._pick = None
        self._let_go()

    async def _first_pick(self) -> Pick | facts.Refusal:
        picked = self._selector.pick(self._request, self._exchange.loop.time())
        if isinstance(picked, facts.Refusal) and picked.queue:
            return await self._wait(picked)
        return picked

    async def _wait(self, full: facts.Refusal) -> Pick | facts.Refusal:
        asked = self._asked
        with self._exchange.watch:
            return await self._waiting.wait(asked.policy, asked.priority.value, self._request, full)

    async def _next(self, failed: Failed) -> Pick | Refusal:
        """Another pick if rules and budget allow one and an engine is left, else what to tell the client.

        A request that no engine can have accepted waits for a full one as it would have at first.
        """
        asked, account = self._asked, self._exchange.account
        now = self._exchange.loop.time()
        verdict = decide_retry(
            account.attempts,
            asked.policy,
            repick=failed.repick,
            replayable=failed.repick or self._replayable,
            now=now,
            shedding=asked.policy.sheds,
        )
        if verdict is Retry.NO:
            account.again("refused")
            return failed.refusal
        picked = self._selector.pick(self._request, now)
        if isinstance(picked, facts.Refusal) and picked.queue and failed.repick:
            picked = await self._wait(picked)
        if isinstance(picked, facts.Refusal):
            account.again("none_left")
            if not (picked.queue and failed.repick):
                return failed.refusal
            account.shed(picked.code)
            return not_picked(picked)
        account.again("repick" if verdict is Retry.REPICK else "retry")
        return picked

    async def _attempt(self, pick: Pick) -> Arrived | Failed:
        exchange, table = self._exchange, self._asked.policy.table
        exchange.account.sending(pick)
        body = self._asked.body
        if pick.served_name is not None:
            body = replace_model(body, pick.served_name)
        tls = pick.config.tls
        address = Address(pick.engine, pick.url, tls.server_name if tls is not None else None, ca_of(pick.config))
        open_: list[Arrived] = []
        try:
            request = UpstreamRequest(self._method, self._asked.route.target, self._lines(pick), body)
            with exchange.watch:
                self._arm(table.timeouts)
                response = await self._upstream.send(address, request, connect=table.timeouts.connect)
                open_.append(arrived := Arrived(pick, response))
                if self._worth_another(response.status):
                    return self._refused_by(arrived)
                arrived.first = await response.read()
        except (NotSent, Lost, Cut, Expired) as error:
            _abort(open_)
            return self._failed(pick, error)
        except BaseException:
            # The client has left: what is open to the engine is closed in this very turn.
            _abort(open_)
            self._report(pick, Outcome.CANCELLED, accounting.CLIENT_GONE)
            raise
        self._selector.report(pick, Outcome.ANSWERED, self._now)
        self._pick = None
        return arrived

    def _lines(self, pick: Pick) -> list[tuple[bytes, bytes]]:
        own = self._credentials.authorization(pick.config) if self._credentials is not None else None
        if own is None and not self._own_keys:
            return self._headers
        secret = (b"authorization", b"x-api-key", b"api-key")
        kept = [pair for pair in self._headers if pair[0].lower() not in secret]
        return kept if own is None else [*kept, (b"Authorization", own.partition(b": ")[2].strip())]

    def _arm(self, timeouts: TableTimeouts) -> None:
        """First body byte of a stream, or the whole of a unary answer."""
        exchange = self._exchange
        if exchange.stream:
            exchange.arm("first_byte", timeouts.first_byte)
        elif timeouts.unary:
            exchange.unary_until = exchange.loop.time() + timeouts.unary
            exchange.arm("unary", timeouts.unary)

    def _failed(self, pick: Pick, error: Exception) -> Failed:
        """What an attempt without an answer means for engine, budget and client."""
        if isinstance(error, NotSent):
            return self._not_sent(pick, error)
        if isinstance(error, Expired):
            if error.kind == "shutdown":
                raise error
            self._report(pick, Outcome.TIMED_OUT, accounting.TIMEOUT)
            self._tried(pick)
            message = f"engine {pick.engine_name} sent nothing in time"
            return Failed(Outcome.TIMED_OUT, False, Refusal(504, f"{error.kind}_timeout", message))
        if isinstance(error, Lost) and error.reused:
            self._upstream.renew(pick.engine)
            self._report(pick, Outcome.REUSED_CLOSED, accounting.ENGINE_ERROR)
            return Failed(Outcome.REUSED_CLOSED, False, _engine_failed(pick, "closed the connection"))
        self._report(pick, Outcome.ENGINE_ERROR, accounting.ENGINE_ERROR)
        self._tried(pick)
        early = "before it answered" if isinstance(error, Lost) else "before the first byte of its answer"
        return Failed(Outcome.ENGINE_ERROR, False, _engine_failed(pick, f"closed the connection {early}"))

    @property
    def _now(self) -> float:
        return self._exchange.loop.time()

    def _worth_another(self, status: int) -> bool:
        """Full, ill, or (once) an address that answers for something else: 404 for a model that its engine has."""
        if status == 404 and not self._missed:
            self._missed = True
            return True
        return status in _FULL or status in _ILL

    def _refused_by(self, arrived: Arrived) -> Failed:
        pick, response = arrived.pick, arrived.response
        self._pick = None
        self._tried(pick)
        if response.status in _FULL:
            told = value_of(response.headers, b"retry-after")
            retry_after = read_retry_after(told.decode("latin-1") if told is not None else None, time.time())
            self._selector.report(pick, Outcome.FULL, self._now, retry_after)
            outcome = Outcome.FULL
            self._exchange.account.attempted(pick, accounting.FULL)
        else:
            outcome = Outcome.ANSWERED if response.status == 404 else Outcome.ENGINE_ERROR
            self._report(pick, outcome, accounting.of_status(response.status))
        arrived.counted = True
        return Failed(outcome, False, _engine_failed(pick, f"answered {response.status}"), kept=arrived)

    def _not_sent(self, pick: Pick, error: NotSent) -> Failed:
        if error.own:
            self._report(pick, Outcome.CANCELLED, accounting.ROUTER_ERROR)
            refusal = Refusal(503, "router_overloaded", "the router has no sockets left", retry_after=1.0)
            return Failed(Outcome.CANCELLED, False, refusal)
        self._report(pick, Outcome.CONNECT_FAILED, accounting.UNREACHED)
        self._tried(pick)
        message = f"engine {pick.engine_name} can't be reached, and no other is left to try"
        return Failed(Outcome.CONNECT_FAILED, True, Refusal(502, "engine_unreachable", message))

    def _report(self, pick: Pick, outcome: Outcome, counted: str) -> None:
        if self._selector.report(pick, outcome, self._now):
            log.warning("engine %s: %s is ejected after repeated failures", pick.engine, pick.url)
        self._exchange.account.attempted(pick, counted)

    def _tried(self, pick: Pick) -> None:
        self._request.tried = (*self._request.tried, (pick.engine, pick.url))

    def _keep(self, arrived: Arrived) -> None:
        self._let_go()
        self._kept = arrived

    def _let_go(self) -> None:
        """A better answer is here: the kept one must not hold a place and a connection as long as that one streams."""
        if self._kept is not None:
            self._kept.drop()
            self._kept = None
            self._waiting.wake()

    def _take_kept(self) -> Arrived | None:
        kept, self._kept = self._kept, None
        return kept


def _abort(arrived: list[Arrived]) -> None:
    for each in arrived:
        each.response.abort()


def _engine_failed(pick: Pick, what: str) -> Refusal:
    return Refusal(502, "engine_failed", f"engine {pick.engine_name} {what}, and no retry was possible")
