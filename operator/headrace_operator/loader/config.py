"""The operator's configuration: tick, what to scrape and how, and the thresholds of liveness and penalties.

Written by who runs the operator (a file, or Helm values), never by tenants: addresses of metrics stand here and not in
resources, so that nobody can make the operator send something elsewhere. Must not read files (see config_file).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headrace_api.base import LabelName
from headrace_api.engine import Url
from headrace_api.units import Duration, Quantity, seconds
from headrace_operator.estimators.penalty import PenaltyRules
from headrace_operator.loader.config_base import ConfigStruct
from headrace_operator.loader.config_places import (
    OWN_PAGES,
    ClusterConfig,
    LeaderElection,
    MetricSource,
    ServiceAddress,
)


class ScrapeConfig(ConfigStruct, frozen=True, kw_only=True):
    """How metrics pages are read: how often, how long one may take, how many at once, how large."""

    interval: Duration = "5s"
    timeout: Duration = "2s"
    concurrency: Annotated[int, Meta(ge=1, le=1024)] = 64
    max_page: Quantity = "4Mi"


class RoutersConfig(ConfigStruct, frozen=True, kw_only=True):
    """All routers of one front-end: whose metrics are its demand.

    urls: their admin addresses. service: the Service of their admin ports, whose endpoints are all of them. Neither:
    those that the metric source finds up. source: a metric source (none: the configuration's ``defaultSource``), or
    "scrape" for the routers' own pages.
    """

    frontend: LabelName
    urls: Annotated[tuple[Url, ...], Meta(max_length=1024)] = ()
    service: ServiceAddress | None = None
    source: LabelName | None = None


class LivenessConfig(ConfigStruct, frozen=True, kw_only=True):
    """refused: connects refused in a row, nothing read between, after which a replica is dead."""

    refused: Annotated[int, Meta(ge=1, le=100)] = 3


class PenaltyConfig(ConfigStruct, frozen=True, kw_only=True):
    """Thresholds of penalties; percentages of the expected latency, of requests, of a model's capacity."""

    enter_percent: Annotated[int, Meta(ge=110, le=10_000)] = 200
    exit_percent: Annotated[int, Meta(ge=100, le=10_000)] = 130
    min_requests: Annotated[int, Meta(ge=1, le=100_000)] = 20
    after: Duration = "60s"
    window: Duration = "60s"
    recover_after: Duration = "60s"
    recover_step: Duration = "30s"
    expiry: Duration = "10m"
    max_percent: Annotated[int, Meta(ge=0, le=100)] = 50
    error_percent: Annotated[int, Meta(ge=1, le=100)] = 20

    def rules(self) -> PenaltyRules:
        """The thresholds as the estimator takes them."""
        return PenaltyRules(
            enter=self.enter_percent / 100,
            exit=self.exit_percent / 100,
            min_requests=self.min_requests,
            after=seconds(self.after),
            recover_after=seconds(self.recover_after),
            recover_step=seconds(self.recover_step),
            expiry=seconds(self.expiry),
            max_share=self.max_percent / 100,
            error_share=self.error_percent / 100,
        )


class TrimConfig(ConfigStruct, frozen=True, kw_only=True):
    """Whether engines are trimmed by measured token times against their profiles."""

    enabled: bool = True


class PromptClassesConfig(ConfigStruct, frozen=True, kw_only=True):
    """Whether requests are told apart by the length of their prompts, where engines differ by it.

    Off by default: with a class's demand still young, the demo's weights moved more and TTFT was no better
    (docs/adr/0009-prompt-classes-are-off.md).
    """

    enabled: bool = False


class MetricNames(ConfigStruct, frozen=True, kw_only=True):
    """Other names for one signal of one runtime, tried in this order before the built-in ones."""

    runtime: Annotated[str, Meta(min_length=1, max_length=64)]
    signal: Annotated[str, Meta(min_length=1, max_length=64)]
    names: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...], Meta(min_length=1, max_length=8)]


class OperatorConfig(ConfigStruct, frozen=True, kw_only=True):
    """The whole configuration; every part has a default.

    default_source: the metric source of engines and routers that name none; without it their own pages are read.
    watch_namespaces: none means all.
    """

    tick: Duration = "5s"
    scrape: ScrapeConfig = ScrapeConfig()
    metric_sources: Annotated[tuple[MetricSource, ...], Meta(max_length=64)] = ()
    default_source: LabelName | None = None
    clusters: Annotated[tuple[ClusterConfig, ...], Meta(max_length=256)] = ()
    watch_namespaces: Annotated[tuple[LabelName, ...], Meta(max_length=1024)] = ()
    leader_election: LeaderElection = LeaderElection()
    routers: Annotated[tuple[RoutersConfig, ...], Meta(max_length=1024)] = ()
    liveness: LivenessConfig = LivenessConfig()
    penalty: PenaltyConfig = PenaltyConfig()
    trim: TrimConfig = TrimConfig()
    prompt_classes: PromptClassesConfig = PromptClassesConfig()
    metric_names: Annotated[tuple[MetricNames, ...], Meta(max_length=256)] = ()
    records: Annotated[int, Meta(ge=1, le=4096)] = 64

    def source_of(self, named: str | None) -> str:
        """The metric source to read from, by what an engine or a front-end's routers name; empty: their own pages.

        A name that is not configured stays as it is, and nothing is read in its place: own pages that nobody meant to
        be asked could look like a dead engine, and would hide the mistake.
        """
        wanted = named or self.default_source or ""
        return "" if wanted == OWN_PAGES else wanted

    def source_fault(self, named: str | None) -> str:
        """What is wrong with the metric source that an engine names; empty when it is there."""
        known = [source.name for source in self.metric_sources]
        wanted = self.source_of(named)
        if not wanted or wanted in known:
            return ""
        return (
            f"spec.metrics.source: {wanted!r}: no such metric source in the operator's configuration; right would be"
            f" one of {', '.join([*known, OWN_PAGES])}"
        )
