"""Where the counts of a model's requests go: children of the metrics, looked up once a table instead of once a request.

On the request path. A book belongs to one model of the view in force and is begun anew after a swap; what it points at
outlives it. Entries are made when they are first needed, by values of the table alone. Must not count anything itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from headrace_router.core.view import ModelView, PolicyView
from headrace_router.telemetry.accumulators import Counter, Histogram
from headrace_router.telemetry.metrics import Demand, Metrics
from headrace_router.telemetry.tokens import Learned

_T = TypeVar("_T")
# Values of the label mode; also names of the histograms beside ttft and tbot.
STREAM = "stream"
UNARY = "unary"
TTFT = "ttft"
TBOT = "tbot"


class ByName(dict[str, _T], Generic[_T]):
    """Entries that ``make`` makes when they are first asked for."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[str], _T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> _T:
        found = self[name] = self._make(name)
        return found


class DemandEntry:
    """Children of one model, priority and prompt class, and the ratios learned there.

    latencies: histograms by TTFT, TBOT and mode; those that nothing was measured for aren't on the page.
    """

    __slots__ = ("client_retries", "ended", "input_tokens", "latencies", "learned", "offered", "output_tokens")

    def __init__(self, metrics: Metrics, labels: Demand, learned: Learned) -> None:
        self.learned = learned
        self.offered: Counter = metrics.offered[labels]
        self.client_retries: Counter = metrics.client_retries[labels]
        self.input_tokens: Counter = metrics.input_tokens[labels]
        self.output_tokens: Counter = metrics.output_tokens[labels]
        self.ended: Counter = metrics.ended[labels]
        self.latencies: ByName[Histogram] = ByName(lambda what: _latency(metrics, labels, what))


def _latency(metrics: Metrics, labels: Demand, what: str) -> Histogram:
    if what == TTFT:
        return metrics.ttft[labels]
    if what == TBOT:
        return metrics.tbot[labels]
    return metrics.duration[(*labels, what)]


class EngineEntry:
    """Children of one engine, and its attempts for one model by outcome."""

    __slots__ = ("duration", "input_tokens", "outcomes", "output_tokens", "tbot", "ttft")

    def __init__(self, metrics: Metrics, model: tuple[str, ...], engine: str) -> None:
        own = (engine,)
        self.outcomes: ByName[Counter] = ByName(lambda outcome: metrics.requests[(*model, engine, outcome)])
        self.duration = metrics.engine_duration[own]
        self.ttft = metrics.engine_ttft[own]
        self.tbot = metrics.engine_tbot[own]
        self.input_tokens = metrics.engine_input_tokens[own]
        self.output_tokens = metrics.engine_output_tokens[own]


class Book:
    """Of one model in a view. demand: by priority, then by index of the prompt class."""

    __slots__ = (
        "demand",
        "engines",
        "labels",
        "metrics",
        "picks",
        "prompt_tokens",
        "retries",
        "usage_bytes",
        "usage_tokens",
        "view",
    )

    def __init__(self, metrics: Metrics, view: ModelView, learned: Callable[[str, str], Learned]) -> None:
        policy, name = view.policy, view.name
        labels = demand_labels(policy, name, "", "")[:4]
        self.view = view
        self.metrics = metrics
        self.labels = labels
        self.prompt_tokens: Histogram = metrics.prompt_tokens[labels]
        self.usage_bytes = metrics.usage_bytes[labels]
        self.usage_tokens = metrics.usage_tokens[labels]
        self.engines: ByName[EngineEntry] = ByName(lambda engine: EngineEntry(metrics, labels, engine))
        self.picks: ByName[Counter] = ByName(lambda reason: metrics.picks[(*labels[:3], reason)])
        self.demand: ByName[list[DemandEntry]] = ByName(
            lambda priority: [
                DemandEntry(metrics, demand_labels(policy, name, priority, label), learned(name, label))
                for label in view.class_labels
            ]
        )


def demand_labels(policy: PolicyView, model: str, priority: str, prompt_class: str) -> Demand:
    """Values of names.LABELS_DEMAND; prompt_class: its label."""
    table = policy.table
    return (table.policy_namespace, table.policy, table.frontend, model, priority, prompt_class)
