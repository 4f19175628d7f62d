"""The part of an exchange before the first body byte: picks, the queue, attempts, retries, answers that are kept.

On the request path. States: waiting (a place in the queue), trying (one attempt runs, its answer's head is held),
chosen (an engine's refusal that was kept is to be passed on, its body has not come). An attempt is closed upstream
before the next starts; a place in the counts is held by nothing that doesn't run. Must not write to the client.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from headrace_router.core import facts
from headrace_router.core.body import replace_model
from headrace_router.core.facts import Outcome, RefusalKind
from headrace_router.core.retry import Retry, decide_retry
from headrace_router.core.selection import Pick
from headrace_router.http1.header_rules import head_to_engine
from headrace_router.http1.request_head import RequestHead
from headrace_router.proxy import attempts
from headrace_router.proxy.attempts import Attempt, Failed
from headrace_router.proxy.intake import Asked
from headrace_router.proxy.means import Means
from headrace_router.proxy.refusals import Refusal, not_picked
from headrace_router.telemetry import accounting
from headrace_router.telemetry.accounting import Account
from headrace_router.upstream.port import Cut, Lost, NotSent, Outgoing

if TYPE_CHECKING:
    from headrace_router.proxy.waiting import Place
    from headrace_router.telemetry.traces import RequestTrace

log = logging.getLogger("headrace.router")

FAILED: Final = "request %s failed"
_WANT: Final = (RefusalKind.SHED, RefusalKind.FULL)


class Trying:
    """See the module; Exchange is the rest."""

    __slots__ = (
        "_attempt",
        "_chosen",
        "_failed",
        "_kept",
        "_lines",
        "_missed",
        "_place",
        "_unary_until",
        "_verdict",
        "account",
        "asked",
        "head",
        "means",
        "peer",
        "request_id",
        "trace",
    )

    means: Means
    head: RequestHead
    asked: Asked
    account: Account
    peer: str | None
    request_id: str
    trace: RequestTrace | None
    _attempt: Attempt | None  # the one that runs, or whose answer is passed on
    _kept: Attempt | None  # an engine's refusal, until something better arrives
    _chosen: Refusal | None  # what to say if the kept answer that is to be passed on never comes
    _place: Place | None  # in a queue
    _failed: Failed | None  # the last attempt, until the next one starts
    _verdict: Retry  # set where _failed is
    _missed: bool
    _lines: list[bytes] | None  # header lines for engines, never changed
    _unary_until: float

    @abstractmethod
    def _begin_relay(self, attempt: Attempt) -> None:
        """This answer is passed on."""

    @abstractmethod
    def _refuse(self, refusal: Refusal) -> None:
        """Nothing is left to try or to pass on."""

    @abstractmethod
    def _fault(self) -> None:
        """A bug of ours: whatever the state, the request ends and nothing stays held."""

    @abstractmethod
    def _arm(self, kind: str, seconds: float, now: float) -> None:
        """Expire as ``kind`` in so many seconds; 0 is no limit."""

    @abstractmethod
    def _disarm(self) -> None:
        """No limit for now."""

    @abstractmethod
    def _idle(self) -> None:
        """The limit between two reads, from now on."""

    @property
    def waiting(self) -> bool:
        """Whether it has a place in a queue."""
        return self._place is not None

    # From the queue.

    def given(self, picked: Pick | facts.Refusal) -> None:
        """See Asker."""
        self._place = None
        now = self.means.time()
        try:
            if self._failed is None:
                self._first(picked, now)
            else:
                self._again(picked, self._failed, now)
        except Exception:
            log.exception(FAILED, self.request_id)
            self._fault()

    # From the attempt.

    def refusal_came(self, attempt: Attempt, status: int) -> None:
        """An error's head has come: keep the answer and try another engine, if that is worth it."""
        if not attempts.worth_another(status, missed=self._missed):
            return
        try:
            self._missed = self._missed or status == 404
            attempt.kept = True
            assert attempt.leg is not None
            attempt.leg.pause()
            self._ended(attempt, attempts.refused_by_engine(attempt, status))
        except Exception:
            log.exception(FAILED, self.request_id)
            self._fault()

    def answer_came(self, attempt: Attempt, raw: bytes, payload: bytes) -> None:
        """The first body bytes of an answer that is passed on; b"": it has none."""
        try:
            if not attempt.counted:
                self.means.selector.report(attempt.pick, Outcome.ANSWERED, self.means.time())
            self._begin_relay(attempt)
            if raw and attempt.relay is not None:
                attempt.relay.pass_on(raw, payload)
        except Exception:
            log.exception(FAILED, self.request_id)
            self._fault()

    def attempt_failed(self, attempt: Attempt, error: NotSent | Lost | Cut) -> None:
        """It ended without an answer to pass on."""
        try:
            if self._chosen is not None:
                self._drop(accounting.CUT)
                self._refuse(self._chosen)
            else:
                self._ended(attempt, attempts.failed(attempt, error))
        except Exception:
            log.exception(FAILED, self.request_id)
            self._fault()

    def _first(self, picked: Pick | facts.Refusal, now: float) -> None:
        if isinstance(picked, Pick):
            self.asked.policy.budget.deposit(now)
            self._send(picked, now)
            return
        if picked.kind in _WANT:
            self.account.shed(picked.code)
        self._refuse(not_picked(picked))

    def _wait(self, full: facts.Refusal) -> None:
        asked = self.asked
        self._disarm()
        place = self.means.waiting.enter(asked.policy, asked.priority.value, asked.facts, full, self)
        self._place = place
        if place is None:
            self.given(full)

    def _send(self, pick: Pick, now: float) -> None:
        means, asked = self.means, self.asked
        policy = asked.policy
        attempt = self._attempt = Attempt(self, pick)
        self.account.sending(pick)
        self._failed = None
        # First body byte of a stream, or the whole of a unary answer.
        if asked.facts.stream:
            if policy.first_byte_limit:
                self._arm("first_byte", policy.first_byte_limit, now)
        elif policy.unary_limit:
            self._unary_until = now + policy.unary_limit
            self._arm("unary", policy.unary_limit, now)
        try:
            lines = self._lines_to(pick)
        except NotSent as error:
            self._ended(attempt, attempts.failed(attempt, error))
            return
        body = asked.body
        if asked.named and (served_name := pick.served_name) is not None:
            body = replace_model(body, served_name)
        outgoing = Outgoing(self.head.method, asked.route.target, lines, body)
        attempt.leg = means.pool.send(means.known().address(pick), outgoing, attempt, policy.connect_limit)

    def _lines_to(self, pick: Pick) -> list[bytes]:
        """Header lines of this attempt; see Outgoing.

        Raises:
            NotSent: the engine wants a key that the router hasn't got.
        """
        asked, means = self.asked, self.means
        own = None
        if pick.config.auth is not None and means.credentials is not None:
            own = means.credentials.authorization(pick.config)
        lines = self._lines
        if lines is None or own is not None:
            drops = own is not None or means.keys is not None
            lines = head_to_engine(self.head, self.peer, self.request_id, asked.keep, drops)
            if own is None:
                self._lines = lines
            else:
                lines.append(own)
        return lines if self.trace is None else [self.trace.lines(b"".join(lines))]

    def _ended(self, attempt: Attempt, failed: Failed) -> None:
        """An attempt has ended without an answer to pass on: another one, or what there is to say."""
        self._attempt = None
        self._disarm()
        if attempt.kept:
            self._let_go()
            self._kept = attempt
        else:
            attempt.stop()
            self.means.waiting.wake()
        asked, account, now = self.asked, self.account, self.means.time()
        verdict = decide_retry(
            account.attempts,
            asked.policy,
            repick=failed.repick,
            replayable=failed.repick or len(asked.body) <= asked.policy.table.limits.retry_body,
            now=now,
            shedding=asked.policy.sheds,
        )
        if verdict is Retry.NO:
            account.again("refused")
            self._settle(failed.refusal)
            return
        self._failed, self._verdict = failed, verdict
        picked = self.means.selector.pick(asked.facts, now)
        if isinstance(picked, facts.Refusal) and picked.queue and failed.repick:
            # What no engine can have accepted waits for a full one as it would have at first.
            self._wait(picked)
        else:
            self._again(picked, failed, now)

    def _again(self, picked: Pick | facts.Refusal, failed: Failed, now: float) -> None:
        account = self.account
        if isinstance(picked, Pick):
            account.again("repick" if self._verdict is Retry.REPICK else "retry")
            self._send(picked, now)
            return
        account.again("none_left")
        if picked.queue and failed.repick:
            account.shed(picked.code)
            self._settle(not_picked(picked))
        else:
            self._settle(failed.refusal)

    def _settle(self, refusal: Refusal) -> None:
        """Nothing more is tried: the engine's own answer if one was kept, else the refusal."""
        kept, self._kept = self._kept, None
        if kept is None or (kept.error is not None and not kept.parts):
            if kept is not None:
                kept.stop()
            self._refuse(refusal)
            return
        self._attempt = kept
        kept.kept = False
        if not kept.parts and not kept.ended:
            self._chosen = refusal
            self._idle()
            assert kept.leg is not None
            kept.leg.resume()
            return
        self._pass_kept(kept)

    def _pass_kept(self, kept: Attempt) -> None:
        self._begin_relay(kept)
        relay = kept.relay
        assert relay is not None
        for raw, payload in kept.parts:
            relay.pass_on(raw, payload)
        kept.parts = ()
        if kept.error is not None:
            relay.cut()
        elif kept.ended:
            relay.end()

    def _let_go(self) -> None:
        """A better answer is here: the kept one must not hold a place and a connection as long as that one streams."""
        kept = self._kept
        if kept is not None:
            self._kept = None
            kept.stop()
            kept.leg = None
            self.means.waiting.wake()

    def _forget_body(self) -> None:
        if self.asked.body:
            self.means.memory.give(len(self.asked.body))
            self.asked.body = b""

    def _drop(self, counted: str) -> None:
        """Close what is tried or waited for, unfinished."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.report(Outcome.CANCELLED, counted)
            attempt.stop()
        if self._place is not None:
            self.means.waiting.leave(self._place)
            self._place = None
