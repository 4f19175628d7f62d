"""The router's own metrics: what it was offered, what it did, what it knows.

Beside the request path. Label values come from the table (models, priorities, engines), never from a client, so that
their number is bounded; what left the tables is forgotten after a while. Histograms carry no engine label: a page of
1,000 engines x 3 histograms blocks the loop for 1.3 s; engines have sums and counts. Live state (in flight, ejected,
tables) is read when the page is asked for, and the page is made in steps, so that it never holds up a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headrace_api import names
from headrace_router.telemetry.accumulators import Child, Counter, Gauge, Histogram, Summary
from headrace_router.telemetry.snapshot import Labels, Merge, Part, in_parts, page

# Seconds. TTFT of interactive work lies between 50 ms and 10 s, whole answers between 0.1 s and 10 minutes.
TTFT_BUCKETS: Final = (0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 60.0)
# Seconds between tokens: from small models with speculation to a large one that is overrun.
TBOT_BUCKETS: Final = (0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.5, 1.0)
DURATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
# Tokens: what a person would choose as an edge between prompt classes, a third apart.
_DIGITS: Final = (1, 1.5, 2, 3, 4, 6, 8)
PROMPT_BUCKETS: Final = (50.0, 75.0, *(digit * 10**power for power in (2, 3, 4) for digit in _DIGITS), 1e5, 1.5e5, 2e5)
CONNECT_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
POLICY: Final = ("policy_namespace", "policy", "frontend")
_MODEL: Final = (*POLICY, "model")
_DEMAND: Final = names.LABELS_DEMAND
_OUTCOMES: Final = (
    "Attempts by how they ended: ok, client_error, engine_error, full, unreached, cut, timeout, client_gone, shutdown, "
    "router_error."
)
# Seconds that the series of an engine or model that left the tables stay, so that its last counts are still scraped.
KEEP_S: Final = 900.0

Demand = tuple[str, str, str, str, str, str]


class Live(NamedTuple):
    """A family of gauges that is read from the selector when the page is made."""

    text: str
    labels: Labels
    merge: Merge


# Of several processes: what each has a part of adds up; of what each sees for itself the worst is told, or the last.
LIVE: Final[dict[str, Live]] = {
    names.METRIC_IN_FLIGHT: Live("Requests in flight by engine.", ("engine",), "sum"),
    names.METRIC_EJECTED: Live("Endpoints that this router keeps away from: ejected or not ready.", ("engine",), "max"),
    names.METRIC_ENDPOINTS: Live(
        "Addresses of an engine that this router can use: neither ejected nor not ready.", ("engine",), "min"
    ),
    names.METRIC_ROUND_TRIP: Live(
        "Median of the connects of five minutes, where measured.", ("frontend", "engine"), "max"
    ),
    names.METRIC_ROUND_TRIP_SAMPLES: Live("Connects that the median is of.", ("frontend", "engine"), "max"),
    "headrace_retry_budget_left": Live("Retries that could be made at this instant.", POLICY, "sum"),
    names.METRIC_TABLE_REVISION: Live("Revision of the table in use.", POLICY, "min"),
    names.METRIC_TABLE_ISSUED: Live("When the table in use was issued.", POLICY, "min"),
    names.METRIC_TABLE_APPLIED: Live("When this router applied the table in use.", POLICY, "max"),
    names.METRIC_TABLE_WATCHED: Live(
        "1: the ConfigMap is watched; 0: the mounted file, or the last table, is used instead.", ("table",), "min"
    ),
    "headrace_table_info": Live("Hash of the table in use; always 1.", (*POLICY, "hash"), "max"),
    "headrace_build_info": Live(
        "Version, and whether the hot modules run compiled or as source; always 1.", ("version", "form"), "max"
    ),
    names.METRIC_HEARTBEAT_AGE: Live("Since the operator's last sign of life; absent where none is known.", (), "max"),
}


class Gauges(NamedTuple):
    """One family of live gauges; rows may be an iterator, which is then read in steps."""

    name: str
    text: str
    labels: Labels
    rows: Iterable[tuple[Labels, float]]
    merge: Merge = "sum"


def live(name: str, rows: Iterable[tuple[Labels, float]]) -> Gauges:
    """One family of LIVE with what was read."""
    family = LIVE[name]
    return Gauges(name, family.text, family.labels, rows, family.merge)


_C = TypeVar("_C", bound=Child)


class Family(Generic[_C]):
    """Children of a metric by their label values."""

    __slots__ = ("_children", "_head", "_make", "labels")

    def __init__(self, make: Callable[[], _C], name: str, text: str, labels: Labels) -> None:
        first = make()
        bounds = first.bounds if isinstance(first, Histogram) else ()
        self._make = make
        self._head = Part(name, first.kind, text, labels, "sum", bounds, [])
        self._children: dict[Labels, _C] = {}
        self.labels = labels

    def __getitem__(self, values: Labels) -> _C:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._make()
        return child

    @property
    def name(self) -> str:
        return self._head.name

    @property
    def text(self) -> str:
        """What the page says of it."""
        return self._head.text

    @property
    def kind(self) -> str:
        """The type that the page states."""
        return self._head.kind

    def forget(self, values: Labels) -> None:
        """Drop one child; another begins at 0 if the labels are ever used again."""
        del self._children[values]

    def owners(self, values: Labels) -> Iterator[Labels]:
        """Of whom in the tables a child speaks: an engine, a policy's model."""
        if "engine" in self.labels:
            yield (values[self.labels.index("engine")],)
        if "model" in self.labels:
            yield values[: self.labels.index("model") + 1]

    def known(self) -> list[Labels]:
        """Label values of all children."""
        return list(self._children)

    def parts(self) -> Iterator[Part]:
        """All children's numbers, in steps."""
        return in_parts(self._head, ((values, child.read()) for values, child in list(self._children.items())))


class Metrics:
    """All that one process counts."""

    def __init__(self) -> None:
        self.families: list[Family[Any]] = []
        self._owners: frozenset[Labels] = frozenset()
        self._gone: dict[Labels, float] = {}
        self._make_demand()
        self._make_attempts()
        self._make_latencies()
        self.refused = self._counter(
            "headrace_refused_total", "Requests that the router answered itself, by error code.", ("code",)
        )
        self.table_rejects = self._counter(names.METRIC_TABLE_REJECTS, "Tables that were refused.", ("table",))
        self.tls_handshakes = self._counter(
            "headrace_tls_handshakes_total",
            "Clients' TLS handshakes by how they ended: ok, failed, timeout, gone, refused.",
            ("outcome",),
        )
        self.credential_rejects = self._counter(
            "headrace_credential_rejects_total",
            "Files of keys and certificates that were refused: client_tls, client_keys, engine.",
            ("what",),
        )
        self.queued = self._kept(Family(Gauge, "headrace_queued_requests", "Requests waiting for an engine.", ()))[()]
        self.log_dropped = self._counter(
            "headrace_access_log_dropped_total", "Lines of the access log that its reader was too slow for.", ()
        )[()]
        self.spans = self._counter(
            "headrace_trace_spans_total", "Spans by what became of them: exported, failed, dropped.", ("result",)
        )

    def _make_demand(self) -> None:
        self.offered = self._counter(names.METRIC_OFFERED, "Requests offered, first tries only.", _DEMAND)
        self.client_retries = self._counter(
            names.METRIC_CLIENT_RETRIES, "Clients' own retries (x-stainless-retry-count above 0).", _DEMAND
        )
        self.input_tokens = self._counter(names.METRIC_OFFERED_INPUT_TOKENS, "Input tokens offered.", _DEMAND)
        self.output_tokens = self._counter(names.METRIC_OFFERED_OUTPUT_TOKENS, "Output tokens offered.", _DEMAND)
        self.ended = self._counter(names.METRIC_ENDED, "Requests behind the two token counters.", _DEMAND)
        self.usage_bytes = self._counter(
            names.METRIC_USAGE_BYTES, "Body bytes of requests whose answer stated usage.", _MODEL
        )
        self.usage_tokens = self._counter(names.METRIC_USAGE_TOKENS, "Input tokens that answers' usage stated.", _MODEL)
        self.prompt_tokens = self._histogram(
            names.METRIC_PROMPT_TOKENS,
            "Input tokens of offered requests, as their bytes tell: what the prompt class goes by.",
            _MODEL,
            PROMPT_BUCKETS,
        )

    def _make_attempts(self) -> None:
        self.requests = self._counter(names.METRIC_REQUESTS, _OUTCOMES, (*_MODEL, "engine", "outcome"))
        self.shed = self._counter(
            names.METRIC_SHED, "Refused for want of capacity: shed or saturated.", (*_MODEL, "priority", "reason")
        )
        self.retries = self._counter(
            names.METRIC_RETRIES,
            "Further attempts: repick, retry; and none made: refused, none_left.",
            (*POLICY, "kind"),
        )
        self.picks = self._counter(
            "headrace_picks_total", "Picks: affinity, spill, retry, weighted.", (*POLICY, "reason")
        )
        self.engine_input_tokens = self._counter(
            "headrace_engine_input_tokens_total", "Input tokens of requests that the engine answered.", ("engine",)
        )
        self.engine_output_tokens = self._counter(
            "headrace_engine_output_tokens_total", "Output tokens that the engine answered with.", ("engine",)
        )

    def _make_latencies(self) -> None:
        self.ttft = self._histogram(
            names.METRIC_TTFT, "From the request's head to the first token of a stream.", _DEMAND, TTFT_BUCKETS
        )
        self.tbot = self._histogram(
            "headrace_time_between_output_tokens_seconds",
            "Of each stream, from its first token to its end by the tokens after the first.",
            _DEMAND,
            TBOT_BUCKETS,
        )
        self.duration = self._histogram(
            names.METRIC_DURATION,
            "From the request's head to the end of a good answer; mode: stream, unary.",
            (*_DEMAND, "mode"),
            DURATION_BUCKETS,
        )
        self.engine_ttft = self._summary(
            "headrace_engine_time_to_first_token_seconds", "From sending to the first token of a stream."
        )
        self.engine_tbot = self._summary(
            "headrace_engine_time_between_output_tokens_seconds",
            "Sum: seconds from first tokens to ends of streams; count: the tokens after the first.",
        )
        self.engine_duration = self._summary(
            "headrace_engine_request_duration_seconds", "From sending to the end of a good answer."
        )
        self.connect = self._histogram(
            "headrace_upstream_connect_seconds", "Making a connection.", (), CONNECT_BUCKETS
        )[()]

    def _counter(self, name: str, text: str, labels: Labels) -> Family[Counter]:
        return self._kept(Family(Counter, name, text, labels))

    def _histogram(self, name: str, text: str, labels: Labels, bounds: tuple[float, ...]) -> Family[Histogram]:
        return self._kept(Family(lambda: Histogram(bounds), name, text, labels))

    def _summary(self, name: str, text: str) -> Family[Summary]:
        return self._kept(Family(Summary, name, text, ("engine",)))

    def _kept(self, family: Family[_C]) -> Family[_C]:
        self.families.append(family)
        return family

    def retain(self, owners: Iterable[Labels], now: float) -> None:
        """Called with a new view: ``owners`` are (engine,) and (policy namespace, policy, front-end, model) in it.

        Series of others go once they have been gone for KEEP_S: engines come and go, a router stays for months.
        """
        there = frozenset(owners)
        if there == self._owners:
            return
        self._gone |= dict.fromkeys(self._owners - there, now)
        self._owners = there
        self._gone = {owner: since for owner, since in self._gone.items() if owner not in there}
        over = {owner for owner, since in self._gone.items() if now - since >= KEEP_S}
        if not over:
            return
        for family in self.families:
            for values in family.known():
                if not over.isdisjoint(family.owners(values)):
                    family.forget(values)
        for owner in over:
            del self._gone[owner]

    def parts(self, read: Callable[[], Iterable[Gauges]]) -> Iterator[Part]:
        """All families and what ``read`` gives of live ones, in steps."""
        for family in self.families:
            yield from family.parts()
        for gauges in read():
            head = Part(gauges.name, "gauge", gauges.text, gauges.labels, gauges.merge, (), [])
            yield from in_parts(head, ((values, (number,)) for values, number in gauges.rows))

    async def page(self, read: Callable[[], Iterable[Gauges]]) -> bytes:
        """The page in Prometheus' text format."""
        return await page(self.parts(read))
