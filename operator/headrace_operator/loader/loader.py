"""The loader: samples of all targets into one ``Signals`` at one instant.

On the engine-signal path. Knows which targets follow from resources and configuration, feeds the trackers, and states
what is fresh, held, widened or unknown. It gets its samples from any SignalSource. Two clocks, both arguments: steady
seconds for ages, the wall's for what people read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace_api.base import resource_id
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.units import number, seconds
from headrace_operator.estimators.staleness import State, Thresholds
from headrace_operator.loader.classes import by_class
from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.demand import DemandTrackers, DemandView
from headrace_operator.loader.engines import EngineRules, EngineTrackers, EngineView
from headrace_operator.loader.prompts import PromptTrackers
from headrace_operator.loader.round_trips import RoundTripTrackers
from headrace_operator.loader.source import PageTarget, RouterTarget, ScrapeSettings, TargetSample
from headrace_operator.loader.source_states import SourceTrackers, SourceView
from headrace_operator.loader.targets import Services, targets
from headrace_operator.snapshot.clock import rfc3339
from headrace_operator.snapshot.selection import LabelIndex
from headrace_operator.snapshot.signals import DemandSignal, Factor, Signals, SignalStatus

ENGINE_HOLD: Final = 30.0
ENGINE_DEGRADE: Final = 120.0


def scrape_settings(config: OperatorConfig) -> ScrapeSettings:
    """How everything is read, in numbers; and the metric sources."""
    return ScrapeSettings(
        interval=seconds(config.scrape.interval),
        timeout=seconds(config.scrape.timeout),
        concurrency=config.scrape.concurrency,
        max_page=int(number(config.scrape.max_page)),
        sources=config.metric_sources,
    )


class Loader:
    """Holds what was observed; ``signals`` is the world as measured now."""

    def __init__(self, config: OperatorConfig) -> None:
        self._engines = EngineTrackers(_rules(config))
        self._demand = DemandTrackers()
        self._prompts = PromptTrackers()
        self._round_trips = RoundTripTrackers()
        self._sources = SourceTrackers()
        self._classed = config.prompt_classes.enabled
        self._limits: dict[str, Thresholds] = {}
        self._frontends: frozenset[str] = frozenset()
        self._since: dict[str, tuple[State, str]] = {}
        self._misnamed: dict[str, str] = {}
        self.views: dict[str, EngineView] = {}

    def configure(
        self,
        engines: Sequence[InferenceEngine],
        policies: Sequence[RoutingPolicy],
        config: OperatorConfig,
        services: Services | None = None,
    ) -> tuple[PageTarget, ...]:
        """Follow these resources and this configuration; gives the targets to read.

        services: endpoints by ``namespace/service:port``; a Service that was never listed has no entry.
        """
        services = services or {}
        self._limits = {
            resource_id(policy.metadata): Thresholds(
                seconds(policy.spec.staleness.hold), seconds(policy.spec.staleness.degrade)
            )
            for policy in policies
        }
        self._frontends = frozenset(frontend.name for policy in policies for frontend in policy.spec.frontends)
        self._classed = config.prompt_classes.enabled
        self._engines.configure(_rules(config))
        named = {resource_id(engine.metadata): config.source_of(engine.spec.metrics.source) for engine in engines}
        self._engines.retarget(engines, _holds(engines, policies), services, named)
        self._misnamed = {
            resource_id(engine.metadata): fault
            for engine in engines
            if (fault := config.source_fault(engine.spec.metrics.source))
        }
        found = targets(engines, config, self._engines.pools.to_read(), services)
        routers = [target for target in found if isinstance(target, RouterTarget)]
        self._demand.retarget(routers)
        self._prompts.retarget(routers)
        self._sources.retarget(target.source for target in found if target.source)
        return found

    def restore(
        self,
        punished: Mapping[str, Factor],
        steady: float,
        *,
        trimmed: Mapping[str, Factor] | None = None,
        dead: Iterable[str] = (),
        ratios: Iterable[tuple[str, float]] = (),
        edges: tuple[int, ...] = (),
    ) -> None:
        """What an earlier start knew, until samples speak: penalties, trims, deaths of engines, bytes a token by model.

        Penalties count as confirmed now. edges: of prompt classes.
        """
        self._engines.restore(punished, steady, trimmed, dead)
        self._prompts.restore(ratios, edges)

    def observe(self, samples: Sequence[TargetSample], shedding: Collection[str] = ()) -> None:
        """Take samples; shedding: ids of policies that shed now."""
        self._engines.observe(samples)
        self._demand.observe(samples, shedding)
        self._prompts.observe(samples)
        self._round_trips.observe(samples)
        self._sources.observe(samples)

    def signals(self, steady: float, wall: float) -> Signals:
        """What is known at ``steady`` (the samples' clock), stamped with the ``wall``'s time."""
        places = self._sources.views(steady)
        self.views = self._engine_views(steady, {place.name: place for place in places if place.away})
        sources = self._demand.views(steady, self._limits)
        states = [
            self._status(f"metric source {place.name}", place.state, wall - (steady - place.since), place.read)
            for place in places
        ]
        states += [
            self._status(_engine_name(name, view), view.state, wall - (steady - view.state_since), view.read)
            for name, view in sorted(self.views.items())
            # That an engine is dead is known, and said elsewhere: its silence is no news.
            if view.signal.alive is not False
        ]
        states += [
            self._status(
                f"demand {view.name.policy} {view.name.frontend} {view.name.model}",
                view.state,
                wall - (steady - view.state_since),
                read=True,
            )
            for view in sources
        ]
        states += [
            SignalStatus(name=f"mass loss: over half of {model} seems dead; held", state="Held")
            for model in sorted(self._engines.held_models)
        ]
        self._since = {state.name: self._since[state.name] for state in states if state.name in self._since}
        return Signals(
            at=rfc3339(wall),
            class_edges=self._edges,
            demand=tuple(signal for view in sources for signal in self._parts(view)),
            round_trips=self._round_trips.signals(steady),
            engines=tuple(view.signal for _, view in sorted(self.views.items())),
            states=tuple(states),
            routers=self._demand.routers_seen(),
            bytes_per_token=self._prompts.bytes_per_token(),
            drifts=self._engines.drifts(),
        )

    def _engine_views(self, steady: float, away: Mapping[str, SourceView]) -> dict[str, EngineView]:
        """All engines; of those whose metric source is away, or not there, it is that which is wrong with them."""
        sent = self._demand.sent_rates(self._frontends, steady)
        views = self._engines.views(steady, self._demand.ejected(), sent, away)

        def explained(name: str, view: EngineView) -> EngineView:
            if name in self._misnamed:
                return replace(view, misnamed=self._misnamed[name])
            if view.source in away:
                return replace(view, problems=(f"metric source {view.source}: {away[view.source].problem}",))
            return view

        return {name: explained(name, view) for name, view in views.items()}

    def _parts(self, view: DemandView) -> tuple[DemandSignal, ...]:
        """The demand of a source by prompt class, or as one where classes are not told apart."""
        if view.signal is None or not self._edges:
            return () if view.signal is None else (view.signal,)
        return by_class(view.signal, view.classes, self._prompts.expected(view.name), self._edges)

    @property
    def _edges(self) -> tuple[int, ...]:
        return self._prompts.edges if self._classed else ()

    def engine_since(self, engine: str) -> str:
        """When the engine's signals entered their state, RFC 3339 (empty before the first ``signals``)."""
        view = self.views.get(engine)
        found = None if view is None else self._since.get(_engine_name(engine, view))
        return found[1] if found is not None else ""

    def _status(self, name: str, state: State, since: float, read: bool) -> SignalStatus:
        """The state with the time at which it was entered, which must not wobble with the clocks."""
        known = self._since.get(name)
        if known is None or known[0] != state:
            known = self._since[name] = (state, rfc3339(since))
        return SignalStatus(name=name, state=state, since=known[1], read=read)


def _engine_name(engine: str, view: EngineView) -> str:
    return f"engine {engine} from {view.source}" if view.source else f"engine {engine}"


def _rules(config: OperatorConfig) -> EngineRules:
    return EngineRules(
        refused=config.liveness.refused,
        window=seconds(config.penalty.window),
        penalty=config.penalty.rules(),
        trim=config.trim.enabled,
    )


def _holds(engines: Sequence[InferenceEngine], policies: Sequence[RoutingPolicy]) -> dict[str, tuple[float, float]]:
    """(hold, degrade) by engine: the most patient of the policies that select it."""
    index = LabelIndex((engine.metadata.namespace, engine.metadata.labels.items()) for engine in engines)
    using: dict[int, list[tuple[float, float]]] = {}
    for policy in policies:
        asked = (seconds(policy.spec.staleness.hold), seconds(policy.spec.staleness.degrade))
        for at in index.matching(policy.metadata.namespace, policy.spec.engine_selector.match_labels):
            using.setdefault(at, []).append(asked)
    found: dict[str, tuple[float, float]] = {}
    for at, engine in enumerate(engines):
        limits = using.get(at, [(ENGINE_HOLD, ENGINE_DEGRADE)])
        found[resource_id(engine.metadata)] = (max(hold for hold, _ in limits), max(degrade for _, degrade in limits))
    return found
