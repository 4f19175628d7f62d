"""The router's own metrics: what it was offered, what it did, what it knows.

Beside the request path. Label values come from the table (models, priorities, engines), never from a client, so that
their number is bounded; what left the tables is forgotten after a while. Histograms carry no engine label: a page of
1,000 engines x 3 histograms blocks the loop for 1.3 s; engines have sums and counts. Live state (in flight, ejected,
tables) is read when the page is asked for, and the page is made in steps, so that it never holds up a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.utils import floatToGoString

from headrace_api import names

# Seconds. TTFT of interactive work lies between 50 ms and 10 s, whole answers between 0.1 s and 10 minutes.
TTFT_BUCKETS: Final = (0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 60.0)
DURATION_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
# Tokens: what a person would choose as an edge between prompt classes, a third apart.
_DIGITS: Final = (1, 1.5, 2, 3, 4, 6, 8)
PROMPT_BUCKETS: Final = (50.0, 75.0, *(digit * 10**power for power in (2, 3, 4) for digit in _DIGITS), 1e5, 1.5e5, 2e5)
CONNECT_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
POLICY: Final = ("policy_namespace", "policy", "frontend")
_OUTCOMES: Final = (
    "Attempts by how they ended: ok, client_error, engine_error, full, unreached, cut, timeout, client_gone, shutdown, "
    "router_error."
)
# Lines rendered between two turns of the loop, well under 1 ms; a histogram's child has 17.
STEP: Final = 50
# Seconds that the series of an engine or model that left the tables stay, so that its last counts are still scraped.
KEEP_S: Final = 900.0

Labels = tuple[str, ...]
Demand = tuple[str, str, str, str, str, str]


# Families that are read from the selector when the page is made: name, text, labels.
LIVE: Final[dict[str, tuple[str, Labels]]] = {
    names.METRIC_IN_FLIGHT: ("Requests in flight by engine.", ("engine",)),
    names.METRIC_EJECTED: ("Endpoints that this router keeps away from: ejected or not ready.", ("engine",)),
    names.METRIC_ENDPOINTS: (
        "Addresses of an engine that this router can use: neither ejected nor not ready.",
        ("engine",),
    ),
    names.METRIC_ROUND_TRIP: ("Median of the connects of five minutes, where measured.", ("frontend", "engine")),
    names.METRIC_ROUND_TRIP_SAMPLES: ("Connects that the median is of.", ("frontend", "engine")),
    "headrace_retry_budget_left": ("Retries that could be made at this instant.", POLICY),
    names.METRIC_TABLE_REVISION: ("Revision of the table in use.", POLICY),
    names.METRIC_TABLE_ISSUED: ("When the table in use was issued.", POLICY),
    names.METRIC_TABLE_APPLIED: ("When this router applied the table in use.", POLICY),
    names.METRIC_TABLE_WATCHED: (
        "1: the ConfigMap is watched; 0: the mounted file, or the last table, is used instead.",
        ("table",),
    ),
    "headrace_table_info": ("Hash of the table in use; always 1.", (*POLICY, "hash")),
    names.METRIC_HEARTBEAT_AGE: ("Since the operator's last sign of life; absent where none is known.", ()),
}


class Gauges(NamedTuple):
    """One family of live gauges."""

    name: str
    text: str
    labels: Labels
    rows: list[tuple[Labels, float]]


def live(name: str, rows: list[tuple[Labels, float]]) -> Gauges:
    """One family of LIVE with what was read."""
    text, labels = LIVE[name]
    return Gauges(name, text, labels, rows)


class Family:
    """Children of a metric by their label values, without prometheus-client's lock and checks on every use."""

    __slots__ = ("_children", "_metric", "labels", "name", "text")

    def __init__(self, metric: Any, name: str, text: str, labels: Labels) -> None:
        self._metric = metric
        self._children: dict[Labels, Any] = {}
        self.name = name
        self.text = text
        self.labels = labels

    def __getitem__(self, values: Labels) -> Any:
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values) if values else self._metric
        return child

    def forget(self, values: Labels) -> None:
        """Drop one child; it begins at 0 if it is ever used again."""
        del self._children[values]
        self._metric.remove(*values)

    def owners(self, values: Labels) -> Iterator[Labels]:
        """Of whom in the tables a child speaks: an engine, a policy's model."""
        if "engine" in self.labels:
            yield (values[self.labels.index("engine")],)
        if "model" in self.labels:
            yield values[: self.labels.index("model") + 1]

    def known(self) -> list[Labels]:
        """Label values of all children."""
        return list(self._children)

    @property
    def kind(self) -> str:
        """The type that the page states."""
        return str(self._metric._type)

    def series(self) -> Iterator[str]:
        """Lines of all children, one list item a child."""
        for values, child in list(self._children.items()):
            stated = _stated(self.labels, values)
            for metric in child.collect():
                yield "".join(
                    _line(sample.name, stated, sample.labels, sample.value)
                    for sample in metric.samples
                    if not sample.name.endswith("_created")
                )


class Metrics:
    """All that the router counts. Its registry is its own, so that several routers fit in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self.families: list[Family] = []
        self._owners: frozenset[Labels] = frozenset()
        self._gone: dict[Labels, float] = {}
        demand = names.LABELS_DEMAND
        self.offered = self._make(Counter, names.METRIC_OFFERED, "Requests offered, first tries only.", demand)
        self.client_retries = self._make(
            Counter, names.METRIC_CLIENT_RETRIES, "Clients' own retries (x-stainless-retry-count above 0).", demand
        )
        self.input_tokens = self._make(Counter, names.METRIC_OFFERED_INPUT_TOKENS, "Input tokens offered.", demand)
        self.output_tokens = self._make(Counter, names.METRIC_OFFERED_OUTPUT_TOKENS, "Output tokens offered.", demand)
        self.ended = self._make(Counter, names.METRIC_ENDED, "Requests behind the two token counters.", demand)
        model = (*POLICY, "model")
        self.usage_bytes = self._make(
            Counter, names.METRIC_USAGE_BYTES, "Body bytes of requests whose answer stated usage.", model
        )
        self.usage_tokens = self._make(
            Counter, names.METRIC_USAGE_TOKENS, "Input tokens that answers' usage stated.", model
        )
        self.prompt_tokens = self._make(
            Histogram,
            names.METRIC_PROMPT_TOKENS,
            "Input tokens of offered requests, as their bytes tell: what the prompt class goes by.",
            model,
            buckets=PROMPT_BUCKETS,
        )
        self.requests = self._make(Counter, names.METRIC_REQUESTS, _OUTCOMES, (*model, "engine", "outcome"))
        self.shed = self._make(
            Counter,
            names.METRIC_SHED,
            "Refused for want of capacity: shed or saturated.",
            (*model, "priority", "reason"),
        )
        self.refused = self._make(
            Counter, "headrace_refused_total", "Requests that the router answered itself, by error code.", ("code",)
        )
        self.retries = self._make(
            Counter,
            names.METRIC_RETRIES,
            "Further attempts: repick, retry; and none made: refused, none_left.",
            (*POLICY, "kind"),
        )
        self.picks = self._make(
            Counter, "headrace_picks_total", "Picks: affinity, spill, retry, weighted.", (*POLICY, "reason")
        )
        self.table_rejects = self._make(Counter, names.METRIC_TABLE_REJECTS, "Tables that were refused.", ("table",))
        self.tls_handshakes = self._make(
            Counter,
            "headrace_tls_handshakes_total",
            "Clients' TLS handshakes by how they ended: ok, failed, timeout, gone, refused.",
            ("outcome",),
        )
        self.credential_rejects = self._make(
            Counter,
            "headrace_credential_rejects_total",
            "Files of keys and certificates that were refused: client_tls, client_keys, engine.",
            ("what",),
        )
        self.ttft = self._make(
            Histogram, names.METRIC_TTFT, "From the request's head to the first token.", demand, buckets=TTFT_BUCKETS
        )
        self.duration = self._make(
            Histogram, names.METRIC_DURATION, "From the request's head to the end.", demand, buckets=DURATION_BUCKETS
        )
        self.engine_ttft = self._make(
            Summary, "headrace_engine_time_to_first_token_seconds", "From sending to the first token.", ("engine",)
        )
        self.engine_duration = self._make(
            Summary, "headrace_engine_request_duration_seconds", "From sending to the end.", ("engine",)
        )
        self.connect = self._make(
            Histogram, "headrace_upstream_connect_seconds", "Making a connection.", (), buckets=CONNECT_BUCKETS
        )[()]
        self.queued = self._make(Gauge, "headrace_queued_requests", "Requests waiting for an engine.", ())[()]

    def _make(self, kind: type[Any], name: str, text: str, labels: Iterable[str], **settings: Any) -> Family:
        stated = tuple(labels)
        family = Family(kind(name, text, stated, registry=self._registry, **settings), name, text, stated)
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

    async def page(self, read: Callable[[], Iterable[Gauges]]) -> bytes:
        """The page in Prometheus' text format."""
        parts: list[str] = []
        for family in self.families:
            parts.append(_header(family.name, family.text, family.kind))
            await _collect(parts, family.series())
        for gauges in read():
            parts.append(_header(gauges.name, gauges.text, "gauge"))
            await _collect(
                parts, (_line(gauges.name, _stated(gauges.labels, values), {}, n) for values, n in gauges.rows)
            )
        return "".join(parts).encode("utf-8")


async def _collect(parts: list[str], lines: Iterator[str]) -> None:
    since = 0
    for line in lines:
        parts.append(line)
        since += line.count("\n")
        if since >= STEP:
            since = 0
            await asyncio.sleep(0)


def _header(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _stated(labels: Labels, values: Labels) -> str:
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))


def _line(name: str, stated: str, more: dict[str, str], value: float) -> str:
    own = ",".join(f'{label}="{text}"' for label, text in more.items())
    both = ",".join(part for part in (stated, own) if part)
    return f"{name}{{{both}}} {_number(value)}\n" if both else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
