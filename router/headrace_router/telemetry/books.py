"""Where the counts of a model's requests go: children of the metrics, looked up once a table instead of once a request.

On the request path. A book belongs to one model of the view in force and is begun anew after a swap; what it points at
outlives it. Entries are made when they are first needed, by values of the table alone. Must not count anything itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from headrace_router.core.view import ModelView, PolicyView
from headrace_router.telemetry.accumulators import Counter, Histogram, Summary
from headrace_router.telemetry.metrics import Demand, Family, Metrics
from headrace_router.telemetry.tokens import Learned
from headrace_router.telemetry.usage_form import UsageForm

_T = TypeVar("_T")
# Values of the label mode.
STREAM: Final = "stream"
UNARY: Final = "unary"


class ByName(Generic[_T]):
    """Entries that ``make`` makes when they are first asked for."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[str], _T]) -> None:
        self._found: dict[str, _T] = {}
        self._make = make

    def of(self, name: str) -> _T:
        """The entry of that name."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._make(name)
        return found


class Latency:
    """A histogram that isn't on the page before something was measured for it."""

    __slots__ = ("_family", "_found", "_labels")

    def __init__(self, family: Family[Histogram], labels: tuple[str, ...]) -> None:
        self._family = family
        self._labels = labels
        self._found: Histogram | None = None

    def observe(self, value: float) -> None:
        """One more."""
        found = self._found
        if found is None:
            found = self._found = self._family[self._labels]
        found.observe(value)


class DemandEntry:
    """Children of one model, priority and prompt class, and the ratios learned there.

    stream, unary: whole durations, by mode.
    """

    __slots__ = (
        "client_retries",
        "ended",
        "input_tokens",
        "learned",
        "offered",
        "output_tokens",
        "stream",
        "tbot",
        "ttft",
        "unary",
    )

    def __init__(self, metrics: Metrics, labels: Demand, learned: Learned) -> None:
        self.learned = learned
        self.offered: Counter = metrics.offered[labels]
        self.client_retries: Counter = metrics.client_retries[labels]
        self.input_tokens: Counter = metrics.input_tokens[labels]
        self.output_tokens: Counter = metrics.output_tokens[labels]
        self.ended: Counter = metrics.ended[labels]
        self.ttft = Latency(metrics.ttft, labels)
        self.tbot = Latency(metrics.tbot, labels)
        self.stream = Latency(metrics.duration, (*labels, STREAM))
        self.unary = Latency(metrics.duration, (*labels, UNARY))


class EngineEntry:
    """Children of one engine, its attempts for one model by outcome, and how its answers end."""

    __slots__ = ("duration", "form", "input_tokens", "outcomes", "output_tokens", "tbot", "ttft")

    def __init__(self, metrics: Metrics, model: tuple[str, ...], engine: str) -> None:
        own = (engine,)
        self.form = UsageForm()
        self.outcomes: ByName[Counter] = ByName(lambda outcome: metrics.requests[(*model, engine, outcome)])
        self.duration: Summary = metrics.engine_duration[own]
        self.ttft: Summary = metrics.engine_ttft[own]
        self.tbot: Summary = metrics.engine_tbot[own]
        self.input_tokens: Counter = metrics.engine_input_tokens[own]
        self.output_tokens: Counter = metrics.engine_output_tokens[own]


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
        self.usage_bytes: Counter = metrics.usage_bytes[labels]
        self.usage_tokens: Counter = metrics.usage_tokens[labels]
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
