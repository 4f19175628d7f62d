"""Counts one request, from the moment its head and model are known until the end, whatever the end.

On the request path. Offered demand is counted once, before queue, shed and retry; the router's own retries never count
and clients' retries apart, else shedding would feed back into demand. Tokens are counted when the request ends: from
usage, else by learned ratios. Must not count a latency for what touched no engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from headrace_api.names import prompt_class_labels
from headrace_router.core.selection import Pick
from headrace_router.core.view import PolicyView, TableView
from headrace_router.telemetry.metrics import Demand, Metrics
from headrace_router.telemetry.sse import StreamObserver, UnaryObserver, Usage
from headrace_router.telemetry.tokens import Learned

# Outcomes of an attempt, as headrace_requests_total states them.
OK = "ok"
CLIENT_ERROR = "client_error"
ENGINE_ERROR = "engine_error"
FULL = "full"
UNREACHED = "unreached"
CUT = "cut"
TIMEOUT = "timeout"
CLIENT_GONE = "client_gone"
SHUTDOWN = "shutdown"
ROUTER_ERROR = "router_error"


def of_status(status: int) -> str:
    """The outcome that a complete answer's status tells."""
    if status < 400:
        return OK
    if status in (429, 503):
        return FULL
    return CLIENT_ERROR if status < 500 else ENGINE_ERROR


class Ledger:
    """What outlives a request: metrics and learned ratios, by model and prompt class of the table."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._learned: dict[tuple[str, str], Learned] = {}

    def learned(self, model: str, prompt_class: str) -> Learned:
        """Ratios of a model and prompt class (by its label)."""
        found = self._learned.get((model, prompt_class))
        if found is None:
            found = self._learned[model, prompt_class] = Learned()
        return found

    def prepare(self, view: TableView) -> None:
        """Make the demand series of a table at 0, so that the first increase is seen as one; forget who left."""
        self._learned = {key: learned for key, learned in self._learned.items() if key[0] in view.models}
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


def demand_labels(policy: PolicyView, model: str, priority: str, prompt_class: str) -> Demand:
    """Values of names.LABELS_DEMAND; prompt_class: its label."""
    table = policy.table
    return (table.policy_namespace, table.policy, table.frontend, model, priority, prompt_class)


@dataclass(slots=True)
class Account:
    """One request's account. prompt_class: its label.

    ``started``: monotonic seconds (uvloop's own clock ticks in whole milliseconds).
    """

    ledger: Ledger
    policy: PolicyView
    model: str
    priority: str
    prompt_class: str
    bytes_per_token: float
    body_bytes: int
    client_retry: bool
    started: float
    labels: Demand = field(init=False)
    attempts: int = 0
    outcome: str = ""
    engine: str | None = None
    _sent: float = 0.0
    _ended: bool = False

    def __post_init__(self) -> None:
        """Count the offer."""
        self.labels = demand_labels(self.policy, self.model, self.priority, self.prompt_class)
        metrics = self.ledger.metrics
        if self.client_retry:
            metrics.client_retries[self.labels].inc()
        else:
            metrics.offered[self.labels].inc()
            metrics.prompt_tokens[self.labels[:4]].observe(self.body_bytes / self.bytes_per_token)

    @property
    def _policy(self) -> tuple[str, str, str]:
        return self.labels[:3]

    def shed(self, reason: str) -> None:
        """The request was refused for want of capacity."""
        self.ledger.metrics.shed[(*self.labels[:5], reason)].inc()

    def again(self, kind: str) -> None:
        """Another attempt follows (repick, retry), or the budget refused one (refused)."""
        self.ledger.metrics.retries[(*self._policy, kind)].inc()

    def sending(self, pick: Pick) -> None:
        """An attempt starts."""
        self.attempts += 1
        self.engine = pick.engine
        self._sent = monotonic()
        self.ledger.metrics.picks[(*self._policy, pick.reason)].inc()

    def attempted(self, pick: Pick, outcome: str) -> None:
        """An attempt ended as ``outcome``."""
        self.outcome = outcome
        self.ledger.metrics.requests[(*self.labels[:4], pick.engine, outcome)].inc()

    def first_token(self, pick: Pick) -> None:
        """The first event with content was passed on."""
        now = monotonic()
        self.ledger.metrics.ttft[self.labels].observe(now - self.started)
        self.ledger.metrics.engine_ttft[(pick.engine,)].observe(now - self._sent)

    def answered(self, pick: Pick, observer: StreamObserver | UnaryObserver | None) -> None:
        """A good answer ended completely."""
        now = monotonic()
        metrics = self.ledger.metrics
        metrics.duration[self.labels].observe(now - self.started)
        metrics.engine_duration[(pick.engine,)].observe(now - self._sent)
        usage = _usage(observer)
        learned = self.ledger.learned(self.model, self.prompt_class)
        events = observer.content_events if isinstance(observer, StreamObserver) else 0
        learned.answered(self.body_bytes, events, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        if usage.input_tokens:
            model = (*self._policy, self.model)
            metrics.usage_bytes[model].inc(self.body_bytes)
            metrics.usage_tokens[model].inc(usage.input_tokens)
        self._count(usage.input_tokens, _output(usage, events, learned))

    def broken_off(self, observer: StreamObserver | UnaryObserver | None) -> None:
        """An answer ended early; what was generated until then counts."""
        usage = _usage(observer)
        events = observer.content_events if isinstance(observer, StreamObserver) else 0
        learned = self.ledger.learned(self.model, self.prompt_class)
        self._count(usage.input_tokens, _output(usage, events, learned) or learned.unanswered())

    def close(self) -> None:
        """The request ended; without an answer it is given the mean of its kind."""
        if not self._ended:
            self._count(None, self.ledger.learned(self.model, self.prompt_class).unanswered())

    def _count(self, input_tokens: float | None, output_tokens: float | None) -> None:
        if self._ended:
            return
        self._ended = True
        if self.client_retry or output_tokens is None:
            return
        if input_tokens is None:
            input_tokens = self.ledger.learned(self.model, self.prompt_class).input_of(
                self.body_bytes, self.bytes_per_token
            )
        metrics = self.ledger.metrics
        metrics.input_tokens[self.labels].inc(input_tokens)
        metrics.output_tokens[self.labels].inc(output_tokens)
        metrics.ended[self.labels].inc()


def _output(usage: Usage, events: int, learned: Learned) -> float | None:
    """Output tokens of an answer: stated, else by events; a usage without output (embeddings) means none."""
    if usage.output_tokens is not None:
        return usage.output_tokens
    if events:
        return learned.output_of(events)
    return 0.0 if usage.input_tokens is not None else learned.unanswered()


def _usage(observer: StreamObserver | UnaryObserver | None) -> Usage:
    if observer is None:
        return Usage()
    return observer.usage if isinstance(observer, StreamObserver) else observer.usage()
