"""Counts one request, from the moment its head and model are known until the end, whatever the end.

On the request path. Offered demand is counted once, before queue, shed and retry; the router's own retries never count
and clients' retries apart, else shedding would feed back into demand. Tokens are counted when the request ends: from
usage, else by learned ratios. Must not count a latency for what touched no engine.
"""

from __future__ import annotations

from time import monotonic
from typing import Final, Protocol

from mypy_extensions import mypyc_attr

from headrace_api.names import prompt_class_labels
from headrace_router.core.selection import Pick
from headrace_router.core.view import ModelView, TableView
from headrace_router.telemetry.books import Book, DemandEntry, EngineEntry, demand_labels
from headrace_router.telemetry.metrics import Metrics
from headrace_router.telemetry.sse import NO_USAGE, StreamObserver, Usage
from headrace_router.telemetry.tokens import Learned
from headrace_router.telemetry.unary import UnaryObserver

# Outcomes of an attempt, as headrace_requests_total states them.
OK: Final = "ok"
CLIENT_ERROR: Final = "client_error"
ENGINE_ERROR: Final = "engine_error"
FULL: Final = "full"
UNREACHED: Final = "unreached"
CUT: Final = "cut"
TIMEOUT: Final = "timeout"
CLIENT_GONE: Final = "client_gone"
SHUTDOWN: Final = "shutdown"
ROUTER_ERROR: Final = "router_error"


def of_status(status: int) -> str:
    """The outcome that a complete answer's status tells."""
    if status < 400:
        return OK
    if status in (429, 503):
        return FULL
    return CLIENT_ERROR if status < 500 else ENGINE_ERROR


Observer = StreamObserver | UnaryObserver | None


class AttemptSpans(Protocol):
    """What a traced request is told of its attempts."""

    def sending(self, account: Account, pick: Pick) -> None: ...
    def attempted(self, outcome: str, status: int) -> None: ...
    def answered(self, usage: Usage) -> None: ...


class Ledger:
    """What outlives a request: metrics and learned ratios, by model and prompt class of the table."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._learned: dict[tuple[str, str], Learned] = {}
        self._books: dict[str, Book] = {}

    def learned(self, model: str, prompt_class: str) -> Learned:
        """Ratios of a model and prompt class (by its label)."""
        found = self._learned.get((model, prompt_class))
        if found is None:
            found = self._learned[model, prompt_class] = Learned()
        return found

    def book(self, model: ModelView) -> Book:
        """Where a model's requests are counted; begun when the model's first request under a table comes."""
        found = self._books.get(model.name)
        if found is None or found.view is not model:
            found = self._books[model.name] = Book(self.metrics, model, self.learned)
        return found

    def prepare(self, view: TableView) -> None:
        """Make the demand series of a table at 0, so that the first increase is seen as one; forget who left."""
        self._learned = {key: learned for key, learned in self._learned.items() if key[0] in view.models}
        self._books.clear()
        owners = [
            demand_labels(policy, routes.model, "", "")[:4]
            for policy in view.policies
            for routes in policy.table.models
        ]
        self.metrics.retain([*owners, *((engine,) for engine in view.engines)], monotonic())
        for policy in view.policies:
            table = policy.table
            for routes in table.models:
                for label in prompt_class_labels(table.class_edges if len(routes.classes) > 1 else ()):
                    for priority in table.priorities:
                        labels = demand_labels(policy, routes.model, priority.name, label)
                        for family in (
                            self.metrics.offered,
                            self.metrics.client_retries,
                            self.metrics.input_tokens,
                            self.metrics.output_tokens,
                            self.metrics.ended,
                        ):
                            family[labels]


@mypyc_attr(free_list_len=1)
class Account:
    """One request's account.

    Args:
        ledger: where it is counted.
        model: of the view in force; gives labels, prompt class and bytes per token.
        priority: the priority's name.
        body_bytes: size of the request's body.
        client_retry: the client has asked this before.
        started: monotonic seconds when the head was there (uvloop's own clock ticks in whole milliseconds).
    """

    __slots__ = (
        "_book",
        "_demand",
        "_ended",
        "_engine",
        "_first",
        "_pick",
        "_sent",
        "attempts",
        "body_bytes",
        "client_retry",
        "engine",
        "model",
        "outcome",
        "priority",
        "started",
        "trace",
    )

    def __init__(
        self,
        ledger: Ledger,
        model: ModelView,
        priority: str,
        body_bytes: int,
        client_retry: bool,
        started: float,
    ) -> None:
        self._book = book = ledger.book(model)
        self.model = model.name
        self.priority = priority
        self.body_bytes = body_bytes
        self.client_retry = client_retry
        self.started = started
        self.attempts = 0
        self.outcome = ""
        self.engine: str | None = None
        self.trace: AttemptSpans | None = None
        self._sent = self._first = 0.0
        self._ended = False
        # The attempt that runs, and where its engine is counted.
        self._pick: Pick | None = None
        self._engine: EngineEntry | None = None
        tokens = body_bytes / model.bytes_per_token
        self._demand: DemandEntry = book.demand.of(priority)[model.prompt_class(tokens)]
        if client_retry:
            self._demand.client_retries.value += 1
        else:
            self._demand.offered.value += 1
            book.prompt_tokens.observe(tokens)

    @property
    def labels(self) -> tuple[str, ...]:
        """Policy namespace, policy, front-end and model."""
        return self._book.labels

    def shed(self, reason: str) -> None:
        """The request was refused for want of capacity."""
        book = self._book
        book.metrics.shed[(*book.labels, self.priority, reason)].inc()

    def again(self, kind: str) -> None:
        """Another attempt follows (repick, retry), or the budget refused one (refused)."""
        book = self._book
        book.metrics.retries[(*book.labels[:3], kind)].inc()

    def sending(self, pick: Pick) -> None:
        """An attempt starts."""
        self.attempts += 1
        engine = pick.state.id
        self.engine = engine
        self._pick = pick
        self._engine = self._book.engines.of(engine)
        self._sent = monotonic()
        self._book.picks.of(pick.reason).value += 1
        if self.trace is not None:
            self.trace.sending(self, pick)

    def attempted(self, pick: Pick, outcome: str, status: int = 0) -> None:
        """An attempt ended as ``outcome``; status: the engine's, 0 without one."""
        self.outcome = outcome
        self._engine_of(pick).outcomes.of(outcome).value += 1
        if self.trace is not None:
            self.trace.attempted(outcome, status)

    def first_token(self, pick: Pick) -> None:
        """The first event with content was passed on."""
        self._first = now = monotonic()
        self._demand.ttft.observe(now - self.started)
        self._engine_of(pick).ttft.observe(now - self._sent)

    def answered(self, pick: Pick, observer: Observer) -> None:
        """A good answer ended completely."""
        now = monotonic()
        demand, book = self._demand, self._book
        engine = self._engine_of(pick)
        engine.duration.observe(now - self._sent)
        learned = demand.learned
        events = 0
        usage = NO_USAGE
        if isinstance(observer, StreamObserver):
            usage = observer.usage
            events = observer.content_events
            demand.stream.observe(now - self.started)
        else:
            if observer is not None:
                usage = observer.usage(engine.form)
            demand.unary.observe(now - self.started)
        inputs, outputs = usage.input_tokens, usage.output_tokens
        learned.answered(self.body_bytes, events, input_tokens=inputs, output_tokens=outputs)
        if inputs:
            book.usage_bytes.value += self.body_bytes
            book.usage_tokens.value += inputs
        counted = _output(usage, events, learned)
        if self._first and counted is not None and counted > 1:
            spent = now - self._first
            demand.tbot.observe(spent / (counted - 1))
            engine.tbot.count += counted - 1
            engine.tbot.total += spent
        self._count(inputs, counted)
        if self.trace is not None:
            self.trace.answered(usage)

    def broken_off(self, observer: Observer) -> None:
        """An answer ended early; what was generated until then counts."""
        usage = _usage(observer)
        events = observer.content_events if isinstance(observer, StreamObserver) else 0
        learned = self._demand.learned
        self._count(usage.input_tokens, _output(usage, events, learned) or learned.unanswered())

    def close(self) -> None:
        """The request ended; without an answer it is given the mean of its kind."""
        if not self._ended:
            self._count(None, self._demand.learned.unanswered(), answered=False)

    def _engine_of(self, pick: Pick) -> EngineEntry:
        """Where the attempts at its engine are counted; a kept answer's is not the last that was sent."""
        engine = self._engine
        if pick is self._pick and engine is not None:
            return engine
        return self._book.engines.of(pick.state.id)

    def _count(self, input_tokens: float | None, output_tokens: float | None, *, answered: bool = True) -> None:
        """Tokens of the request, once: to the demand it was, and to the engine that answered it."""
        if self._ended:
            return
        self._ended = True
        if output_tokens is None:
            return
        demand = self._demand
        if input_tokens is None:
            input_tokens = demand.learned.input_of(self.body_bytes, self._book.view.bytes_per_token)
        engine = self._engine
        if answered and engine is not None:
            engine.input_tokens.value += input_tokens
            engine.output_tokens.value += output_tokens
        if not self.client_retry:
            demand.input_tokens.value += input_tokens
            demand.output_tokens.value += output_tokens
            demand.ended.value += 1


def _output(usage: Usage, events: int, learned: Learned) -> float | None:
    """Output tokens of an answer: stated, else by events; a usage without output (embeddings) means none."""
    if usage.output_tokens is not None:
        return usage.output_tokens
    if events:
        return learned.output_of(events)
    return 0.0 if usage.input_tokens is not None else learned.unanswered()


def _usage(observer: Observer) -> Usage:
    if observer is None:
        return NO_USAGE
    return observer.usage if isinstance(observer, StreamObserver) else observer.usage()
