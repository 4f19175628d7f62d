"""One request from its first pick to its end, as a state machine without a task.

On the request path. States: waiting (a place in the queue), trying (one attempt runs, its answer's head is held until
the first body byte), chosen (an engine's refusal that was kept is to be passed on, its body has not come), relaying,
flushing (all was written, the client hasn't taken it), over. Whatever way it ends: the engine's connection is closed or
done, its place is given back, it was counted once, the client is told once. One status line goes out.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from headrace_router.core.facts import Refusal as Refused
from headrace_router.http1.paths import Kind
from headrace_router.http1.request_head import RequestHead
from headrace_router.proxy import attempts
from headrace_router.proxy.answer import Answer
from headrace_router.proxy.attempts import Attempt
from headrace_router.proxy.intake import Asked
from headrace_router.proxy.means import Means
from headrace_router.proxy.refusals import FAULT, SHUTTING_DOWN, Refusal
from headrace_router.proxy.relay import Relay
from headrace_router.proxy.seen import Seen
from headrace_router.proxy.trying import FAILED, Trying
from headrace_router.telemetry import accounting
from headrace_router.telemetry.accounting import Account

log = logging.getLogger("headrace.router")


@mypyc_attr(allow_interpreted_subclasses=True)
class Client(ABC):
    """Whoever asked: a connection of the listener, or aiohttp's side of one.

    began: time.monotonic() when the request's head was whole.
    """

    __slots__ = ("answer", "began", "peer")

    answer: Answer
    peer: str | None
    began: float

    @abstractmethod
    def exchange_done(self) -> None:
        """The answer is complete, failed or aborted; ``answer.complete`` and ``answer.keep_alive`` tell which."""


@mypyc_attr(free_list_len=1)
class Exchange(Trying):
    """See the module. Made by Proxy.begin, which calls ``start``."""

    __slots__ = (
        "_begun",
        "_flushing",
        "_kind",
        "_limit",
        "_paused",
        "_relay",
        "_taken",
        "client",
        "deadline",
        "over",
        "seen",
        "touched",
    )

    client: Client
    seen: Seen | None
    deadline: float
    touched: bool
    over: bool
    _begun: bool
    _flushing: bool
    _paused: bool
    _relay: Relay | None
    _kind: str  # of the limit in time that is armed, and its seconds
    _limit: float
    _taken: int  # by the client when it was last looked at; see Answer.taken

    def __init__(
        self,
        means: Means,
        client: Client,
        head: RequestHead,
        asked: Asked,
        account: Account,
        request_id: str,
        seen: Seen | None,
    ) -> None:
        self.means = means
        self.client = client
        self.head = head
        self.asked = asked
        self.account = account
        self.peer = client.peer
        self.request_id = request_id
        self.seen = seen
        self.trace = None if seen is None else seen.trace
        self.deadline = 0.0
        self.touched = False
        self.over = False
        self._attempt = None
        self._kept = None
        self._chosen = None
        self._place = None
        self._failed = None
        self._missed = False
        self._lines = None
        self._unary_until = 0.0
        self._begun = False
        self._relay = None
        self._paused = False
        self._flushing = False

    def start(self) -> None:
        """Pick and send, or wait, or refuse. Afterwards ``over`` says whether it was answered at once."""
        means = self.means
        means.deadlines.add(self)
        now = means.time()
        try:
            picked = means.selector.pick(self.asked.facts, now)
            if isinstance(picked, Refused) and picked.queue:
                self._wait(picked)
            else:
                self._first(picked, now)
        except Exception:
            log.exception(FAILED, self.request_id)
            self._fault()
        self._begun = True

    @property
    def anthropic(self) -> bool:
        """Whether errors have Anthropic's form."""
        return self.asked.route.kind is Kind.MESSAGES

    # From the client's side.

    def client_gone(self) -> None:
        """The client has left: the engine's work ends in this turn."""
        if self._relay is not None:
            self._relay.client_gone()
        if not self.over:
            self._drop(accounting.CLIENT_GONE)
            self.client.answer.leave()
            self._finish()

    def client_paused(self) -> None:
        """The client doesn't keep up: stop reading from the engine, for as long as the send limit."""
        self._paused = True
        if self._relay is not None:
            self._hold_up()

    def client_resumed(self) -> None:
        """It does again."""
        self._paused = False
        if self._flushing:
            self._finish()
        elif self._relay is not None:
            self._idle()
            if self._attempt is not None and self._attempt.leg is not None:
                self._attempt.leg.resume()

    def expire(self, kind: str) -> None:
        """End it now: ``shutdown``, or a limit in time."""
        if self.over:
            return
        if self._flushing:
            self.client.answer.abort()
            self._finish()
        elif self._relay is not None:
            self._relay.give_up(kind)
        elif kind == "shutdown":
            self._drop(accounting.SHUTDOWN)
            self._refuse(SHUTTING_DOWN)
        elif self._chosen is not None:
            self._drop(accounting.TIMEOUT)
            self._refuse(self._chosen)
        elif self._attempt is not None:
            self._ended(self._attempt, attempts.timed_out(self._attempt, kind))

    # From the clock.

    def rearm(self, now: float) -> None:
        """See Timed: something came, or the client took something."""
        until = now + self._limit if self._limit else 0.0
        if self._unary_until and (not until or self._unary_until < until):
            until = self._unary_until
        self.deadline = until

    def expired(self) -> None:
        """See Timed."""
        kind = self._kind
        if self._unary_until and self.means.time() >= self._unary_until:
            kind = "unary"
        elif kind == "send":
            taken = self.client.answer.taken()
            if taken > self._taken:
                self._taken = taken
                self.rearm(self.means.time())
                return
        try:
            self.expire(kind)
        except Exception:
            log.exception(FAILED, self.request_id)
            self._fault()

    # From the relay.

    def relay_ended(self) -> None:
        """All was written: over, once the client keeps up."""
        if self._paused:
            self._flushing = True
            self._hold_up()
        else:
            self._finish()

    def relay_failed(self) -> None:
        """The answer was broken off."""
        self._finish()

    def _disarm(self) -> None:
        self.deadline = 0.0
        self.touched = False

    def _begin_relay(self, attempt: Attempt) -> None:
        """Nothing will be sent again: what was kept for it goes (a body of many MiB must not live as long as this)."""
        if self._kept is not None:
            self._let_go()
        self._forget_body()
        self._lines = None
        self._chosen = None
        self._idle()
        self._relay = attempt.relay = Relay(self, attempt)
        if self._paused:
            self._hold_up()
        elif attempt.counted and attempt.leg is not None:
            attempt.leg.resume()  # it was kept

    def _hold_up(self) -> None:
        """The client doesn't keep up with what is written."""
        if not self._flushing and self._attempt is not None and self._attempt.leg is not None:
            self._attempt.leg.pause()
        self._taken = self.client.answer.taken()
        self._arm("send", self.asked.policy.send_limit, self.means.time())

    def _idle(self) -> None:
        """The limit between two reads, from now on."""
        self._kind = "idle"
        self._limit = self.asked.policy.idle_limit
        self.touched = True

    def _arm(self, kind: str, seconds: float, now: float) -> None:
        """Expire as ``kind`` in so many seconds; 0 is no limit."""
        self._kind = kind
        self._limit = seconds
        self.touched = False
        self.rearm(now)

    def _refuse(self, refusal: Refusal) -> None:
        account = self.account
        try:
            self.means.refuse(self.client.answer, refusal, self.request_id, self.anthropic, account.attempts)
        except ConnectionError:
            self.client.answer.abort()
        if self.seen is not None:
            self.seen.refused(refusal.code)
        self._finish()

    def _fault(self) -> None:
        """A bug of ours: whatever the state, the request ends and nothing stays held."""
        if self.over:
            return
        self._drop(accounting.ROUTER_ERROR)
        if self.client.answer.sent:
            self.client.answer.abort()
            self._finish()
        else:
            self._refuse(FAULT)

    def _finish(self) -> None:
        if self.over:
            return
        self.over = True
        means = self.means
        means.deadlines.discard(self)
        if self._kept is not None:
            self._let_go()
        if self.asked.body:
            self._forget_body()
        attempt = self._attempt
        if attempt is not None:
            # No circle of references is left to the garbage collector.
            attempt.leg = attempt.relay = self._attempt = self._relay = None
        try:
            self.account.close()
            means.ended(self.seen, self.client.answer)
        except Exception:
            # Whoever waits for the end of this one is told all the same: nobody else would.
            log.exception(FAILED, self.request_id)
        if self._begun:
            self.client.exchange_done()
