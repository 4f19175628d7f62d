"""What every source of signals looks like: the engines' own pages, or a Prometheus that scrapes them.

On the engine-signal path. A source is told its targets, and gives what it has read since it was asked last, each with
its own time; it never waits for a slow target. What could not be read is an outcome with a word on why, not a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace_operator.estimators.liveness import Outcome
from headrace_operator.estimators.replica import Signal
from headrace_operator.loader.config_places import MetricSource
from headrace_operator.loader.metric_names import Names


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """One replica of an engine. models: what the engine may call its models on its page.

    source: the metric source that knows it; empty: its own page at ``url``. pod: where it is a pod of the operator's
    cluster. selector: labels that its series have. An empty url (of a metric source): whatever the selector finds.
    """

    engine: str
    url: str
    names: Names = field(hash=False)
    models: frozenset[str]
    source: str = ""
    pod: str = ""
    selector: tuple[tuple[str, str], ...] = ()

    @property
    def replica(self) -> tuple[str, str]:
        """What tells replicas of an engine apart: an address that another pod has taken over is another replica."""
        return self.url, self.pod


@dataclass(frozen=True, slots=True)
class RouterTarget:
    """One router of a front-end; url: its admin address. source, pod, an empty url: as of an engine's replica."""

    frontend: str
    url: str
    source: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class SourceTarget:
    """A metric source itself: each round of queries is one attempt."""

    name: str
    url: str


PageTarget = EngineTarget | RouterTarget
Target = PageTarget | SourceTarget


class DemandKey(NamedTuple):
    """Whose demand a router counted: policy id ``namespace/name``, model, priority, label of the prompt class."""

    policy: str
    model: str
    priority: str
    prompt_class: str = ""


class LengthKey(NamedTuple):
    """What a router's histogram of prompt lengths counted: policy id, model, upper bound in tokens."""

    policy: str
    model: str
    bound: float


@dataclass(frozen=True, slots=True)
class RouterCounts:
    """A router's counters by key; by engine, requests that ended there, and endpoints that are ejected.

    usage_bytes, usage_tokens: by model, body bytes and input tokens of answers that stated their usage. lengths:
    requests offered with at most so many input tokens. round_trips: by engine, seconds and of how many connects they
    are the median.
    """

    offered: Mapping[DemandKey, float] = field(default_factory=dict)
    client_retries: Mapping[DemandKey, float] = field(default_factory=dict)
    ended: Mapping[DemandKey, float] = field(default_factory=dict)
    input_tokens: Mapping[DemandKey, float] = field(default_factory=dict)
    output_tokens: Mapping[DemandKey, float] = field(default_factory=dict)
    sent: Mapping[str, float] = field(default_factory=dict)
    ejected: Mapping[str, float] = field(default_factory=dict)
    usage_bytes: Mapping[str, float] = field(default_factory=dict)
    usage_tokens: Mapping[str, float] = field(default_factory=dict)
    lengths: Mapping[LengthKey, float] = field(default_factory=dict)
    round_trips: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetSample:
    """One attempt to read a target at ``at`` (seconds since the epoch).

    values: an engine's known figures. counts: a router's. problem: why something is unknown; empty when nothing is.
    """

    target: Target
    at: float
    outcome: Outcome
    values: Mapping[Signal, float] = field(default_factory=dict)
    counts: RouterCounts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How often and how hard a source reads: seconds, places, bytes; and which metric sources there are."""

    interval: float = 5.0
    timeout: float = 2.0
    concurrency: int = 64
    max_page: int = 4 * 2**20
    sources: tuple[MetricSource, ...] = ()


class SignalSource(Protocol):
    """A place where signals are read; ``on_change`` is called when something is worth a round of the loop."""

    on_change: Callable[[], None]

    @property
    def targets(self) -> tuple[PageTarget, ...]:
        """What is read now."""

    def configure(self, settings: ScrapeSettings) -> None:
        """New settings hold from each target's next attempt on."""

    def retarget(self, targets: Sequence[PageTarget]) -> None:
        """From now on read these and no others."""

    async def read(self) -> Sequence[TargetSample]:
        """All attempts since the last call, oldest first; does not wait for new ones."""

    async def read_once(self) -> Sequence[TargetSample]:
        """One attempt at every target, waited for, in bounded time."""

    async def close(self) -> None:
        """Stop reading; frees connections."""
