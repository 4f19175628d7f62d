"""The operator's own metrics page, and whether it is well.

On no path of requests. Live ages and loads stand here, because status must hold nothing that moves by itself. Label
names avoid those that scraping renames (namespace, pod, job, instance, service, endpoint).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest

from headrace_api.table import WEIGHT_TOTAL, RoutingTable
from headrace_operator.loader.source import EngineTarget, RouterTarget, SourceTarget, TargetSample

KINDS: Final = {EngineTarget: "engine", RouterTarget: "router", SourceTarget: "source"}
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class OperatorMetrics:
    """Everything the operator counts; one a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shown: tuple[RoutingTable, ...] = ()
        self.ticks = Counter(
            "headrace_operator_ticks", "Rounds of the loop by outcome.", ["outcome"], registry=self.registry
        )
        self.tick_seconds = Summary(
            "headrace_operator_tick_seconds", "Seconds from load to publication.", registry=self.registry
        )
        self.solve_seconds = Summary(
            "headrace_operator_solve_seconds", "Seconds of snapshot and decision.", registry=self.registry
        )
        self.loop_age = Gauge(
            "headrace_operator_loop_age_seconds", "Seconds since the loop last went round.", registry=self.registry
        )
        self.reads = Counter(
            "headrace_operator_reads", "Attempts to read metrics pages.", ["target", "outcome"], registry=self.registry
        )
        self.signal_age = Gauge(
            "headrace_engine_signal_age_seconds", "Age of an engine's figures.", ["engine"], registry=self.registry
        )
        self.weights = Gauge(
            "headrace_route_weight",
            "Published share of a front-end's requests, 0 to 1.",
            ["policy_namespace", "policy", "frontend", "model", "prompt_class", "engine"],
            registry=self.registry,
        )
        self.published = Counter(
            "headrace_tables_published", "Tables written.", ["policy_namespace", "policy"], registry=self.registry
        )
        self.leading = Gauge(
            "headrace_operator_leading", "1 while this operator holds the Lease.", registry=self.registry
        )
        self.term = Gauge("headrace_operator_term", "The term it leads or led in.", registry=self.registry)
        self.watch_age = Gauge(
            "headrace_operator_watch_age_seconds",
            "Seconds since the watches were last seen alive.",
            registry=self.registry,
        )
        self.faults = Gauge(
            "headrace_operator_manifest_faults", "Faults in the manifests as they are.", registry=self.registry
        )

    def count_reads(self, samples: Iterable[TargetSample]) -> None:
        """Count attempts by kind of target and outcome."""
        for sample in samples:
            kind = KINDS[type(sample.target)]
            self.reads.labels(kind, sample.outcome).inc()

    def show_cluster(self, *, leading: bool, term: int, watch_age: float) -> None:
        """What only an operator in a cluster has."""
        self.leading.set(leading)
        self.term.set(term)
        self.watch_age.set(watch_age)

    def show_ages(self, ages: Mapping[str, float]) -> None:
        """Ages of engines' figures by engine; engines that are gone lose their series."""
        self.signal_age.clear()
        for engine, age in ages.items():
            self.signal_age.labels(engine).set(age)

    def show_weights(self, tables: Sequence[RoutingTable]) -> None:
        """Weights of all standing tables; routes that are gone lose their series."""
        if len(tables) == len(self._shown) and all(map(is_, tables, self._shown)):
            return
        self._shown = tuple(tables)
        self.weights.clear()
        for table in tables:
            for routed in table.models:
                for index, routes in enumerate(routed.classes):
                    for route in routes.routes:
                        self.weights.labels(
                            table.policy_namespace, table.policy, table.frontend, routed.model, str(index), route.engine
                        ).set(route.weight / WEIGHT_TOTAL)

    def page(self) -> bytes:
        """The page in Prometheus' text form."""
        return generate_latest(self.registry)
