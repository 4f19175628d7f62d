"""Engines as they are seen: samples in, one EngineSignal an engine out.

On the engine-signal path. Joins the estimators (windows, liveness, penalties, ramps, staleness) for each engine and
guards against mass loss: when over half of a model's capacity seems dead at once, it counts only if a second source,
the routers' own connects, agrees. An engine behind a Service lives by its endpoints and never dies of silence. Must
not do I/O or read clocks; all times are arguments on one steady clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median
from typing import Final

from headrace_api.base import resource_id
from headrace_api.engine import InferenceEngine
from headrace_api.units import seconds
from headrace_operator.estimators import ramp as ramps
from headrace_operator.estimators import staleness
from headrace_operator.estimators.demand import TAU
from headrace_operator.estimators.liveness import Liveness, engine_alive
from headrace_operator.estimators.penalty import Penalty, PenaltyRules
from headrace_operator.estimators.replica import EngineFigures, PageReading, ReplicaWindow, combine
from headrace_operator.loader.engine_penalties import PenaltyRound
from headrace_operator.loader.engine_state import Engine, Replica, agrees, ready_behind_urls, seems_dead
from headrace_operator.loader.expectation import measured, reference_rate
from headrace_operator.loader.pools import ServicePools, key_of
from headrace_operator.loader.source import EngineTarget, TargetSample
from headrace_operator.loader.targets import Services, service_key
from headrace_operator.loader.trims import TrimTrackers
from headrace_operator.snapshot.signals import EngineSignal, Factor, ProfileDrift, Reading

# Where no router can be a second source, so many times the usual number of refused connects stands in for it.
LONE_SOURCE: Final = 3
MASS_LOSS: Final = 0.5
# Work per request follows the hit share: a move smaller than this is noise and would move weights for nothing.
HIT_STEP: Final = 0.04
# Two counters of the same requests differ by those in flight: what is less than so many deviations is none of others'.
BACKGROUND_DEVIATIONS: Final = 3.0
BACKGROUND_STEP: Final = 0.1  # of the engine's rate


@dataclass(frozen=True, slots=True)
class EngineRules:
    """Thresholds: refused connects, averaging window in seconds, penalties; trim: whether engines are trimmed."""

    refused: int = 3
    window: float = 60.0
    penalty: PenaltyRules = field(default_factory=PenaltyRules)
    trim: bool = True


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine now: its signal, the ladder's state since when, and what its pages said that is wrong.

    source: the metric source that it is read from; empty: its own pages. counted: what its replicas are, where they are
    neither declared nor the urls that answer. misnamed: why nothing is ever read of it; empty: it is.
    """

    signal: EngineSignal
    figures: EngineFigures
    state: staleness.State
    state_since: float
    problems: tuple[str, ...]
    source: str = ""
    counted: str = ""
    misnamed: str = ""

    @property
    def read(self) -> bool:
        """Whether its figures were ever read, however long ago."""
        return self.figures.at is not None


class EngineTrackers:
    """State of all engines between samples."""

    def __init__(self, rules: EngineRules) -> None:
        self._rules = rules
        self._engines: dict[str, Engine] = {}
        self._first = True
        self._restored: dict[str, Penalty] = {}
        self._lost: set[str] = set()
        self._trims = TrimTrackers()
        self.held_models: frozenset[str] = frozenset()
        self.pools = ServicePools()

    def configure(self, rules: EngineRules) -> None:
        """New thresholds; what was observed stays."""
        if rules.trim != self._rules.trim:
            self._trims = TrimTrackers()
            self._trims.retarget({name: engine.spec for name, engine in self._engines.items()})
        self._rules = rules
        for engine in self._engines.values():
            for replica in engine.replicas.values():
                replica.window.span = rules.window

    def restore(
        self,
        punished: Mapping[str, Factor],
        steady: float,
        trimmed: Mapping[str, Factor] | None = None,
        dead: Iterable[str] = (),
    ) -> None:
        """Penalties, trims and deaths of an earlier start, for engines that appear; the dead until they answer."""
        self._lost = set(dead)
        if self._rules.trim:
            self._trims.restore({name: factor.value for name, factor in (trimmed or {}).items()})
        self._restored = {
            name: Penalty(
                "Penalized", factor.value, factor.reason, since=steady, confirmed=steady, at=steady, changed=steady
            )
            for name, factor in punished.items()
        }

    def retarget(
        self,
        engines: Iterable[InferenceEngine],
        holds: Mapping[str, tuple[float, float]],
        services: Services | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """Which engines there are; holds: (hold, degrade) seconds by engine id, from the policies that use it.

        services: endpoints of Services. sources: the metric source of each engine that has one.
        """
        wanted = {resource_id(engine.metadata): engine for engine in engines}
        keys = {name: key for name, engine in wanted.items() if (key := service_key(engine))}
        self.pools.retarget({name: (services or {}).get(key) for name, key in keys.items()})
        for name in [name for name in self._engines if name not in wanted]:
            del self._engines[name]
        for name, resource in wanted.items():
            limits = staleness.Thresholds(*holds.get(name, (30.0, 120.0)))
            engine = self._engines.get(name)
            if engine is None:
                engine = self._engines[name] = Engine(resource.spec, limits, self._first)
                engine.penalty = self._restored.pop(name, engine.penalty)
                engine.dead = name in self._lost
            source = (sources or {}).get(name, "")
            if source != engine.source:
                engine.replicas, engine.problem = {}, ""
            engine.spec, engine.limits, engine.source = resource.spec, limits, source
            engine.pooled = self.pools.known(name)
            if not engine.found:
                self._follow(name, engine)
            self._lost.discard(name)
        self._trims.retarget({name: engine.spec for name, engine in self._engines.items()})
        if wanted:
            self._first = False

    def _follow(self, name: str, engine: Engine) -> None:
        """The replicas whose addresses are known: what was observed of those that stay is kept."""
        if engine.pooled:
            keys = {key_of(name, endpoint) for endpoint in self.pools.to_read_of(name)}
        else:
            keys = {(url, "") for url in engine.spec.endpoints.urls}
        for key in [key for key in engine.replicas if key not in keys]:
            del engine.replicas[key]
        for key in keys - engine.replicas.keys():
            known = Liveness(up=False) if name in self._lost and not engine.pooled else Liveness()
            engine.replicas[key] = Replica(ReplicaWindow(self._rules.window), known)

    def observe(self, samples: Iterable[TargetSample]) -> None:
        """Take samples of engines; penalties advance once for each engine that has a new page."""
        updated: dict[str, float] = {}
        for sample in samples:
            if isinstance(sample.target, EngineTarget) and self._take(sample.target, sample):
                updated[sample.target.engine] = sample.at
        for name in updated:
            engine = self._engines[name]
            engine.measured = measured(engine.spec, self._ready(name)[0], combine(self._windows(name, engine)))
        judging = PenaltyRound(self._engines, self._rules.penalty, lambda name: self._ready(name)[0])
        for name, at in updated.items():
            judging.judge(name, at)
            if self._rules.trim:
                engine, windows = self._engines[name], self._windows(name, self._engines[name])
                punished = engine.penalty.factor < 1.0
                self._trims.observe(name, at, engine.spec, self._ready(name)[0], windows, penalized=punished)
        if updated and self._rules.trim:
            self._trims.settle()

    def drifts(self) -> tuple[ProfileDrift, ...]:
        """Models whose profiles are wrong for most engines."""
        return self._trims.drifts()

    def views(
        self,
        now: float,
        ejected: Mapping[str, bool] | None,
        sent: Mapping[str, float] | None = None,
        away: Collection[str] = (),
    ) -> dict[str, EngineView]:
        """All engines at ``now``. ejected: which engines routers can't connect to; None when no router was read.

        sent: requests/s that our routers sent to each engine; None when that is not wholly known. away: metric sources
        that don't answer.
        """
        self._settle_deaths(ejected)
        self.pools.settle(now, lambda loss: agrees(self._engines[loss.engine], loss, now, ejected or {}))
        figures = {name: combine(self._windows(name, engine)) for name, engine in self._engines.items()}
        intervals = self._intervals(figures)
        rungs: dict[str, staleness.Rung] = {}
        for name, engine in self._engines.items():
            seen = figures[name]
            age = None if seen.at is None else max(0.0, now - seen.at)
            interval = seen.interval or intervals.get(engine.source, 0.0)
            limits = staleness.thresholds(engine.limits.hold, engine.limits.degrade, interval)
            rungs[name] = staleness.ladder(age, limits)
        factors = self._factors(rungs, figures, away)
        for name, engine in self._engines.items():
            engine.background = _background(engine.background, figures[name], sent, name)
        return {
            name: self._view(name, engine, figures[name], rungs[name], factors.get(name, 1.0), now)
            for name, engine in self._engines.items()
        }

    def _take(self, target: EngineTarget, sample: TargetSample) -> bool:
        engine = self._engines.get(target.engine)
        if engine is None or target.source != engine.source:
            return False
        if engine.found and not self._find(engine, target, sample):
            return False
        replica = engine.replicas.get(target.replica)
        if replica is None:
            return False
        # A page may be older than the word that there was none: it was scraped before it was asked for.
        replica.tried = (max(sample.at, replica.tried[0]), sample.outcome)
        replica.problem = f"{target.url}: {sample.problem}" if sample.problem else ""
        if sample.outcome in ("Down", "Gone"):
            # A metric source that can't scrape it, or lost sight of it, says nothing of whether it serves.
            replica.up = False if sample.outcome == "Down" else None
            return False
        replica.up = True if engine.source and sample.outcome == "Read" else replica.up
        replica.live = replica.live.observe(sample.at, sample.outcome, self._rules.refused)
        if replica.live.up is False:
            replica.window.readings.clear()
        if sample.outcome != "Read":
            return False
        return replica.window.observe(PageReading(sample.at, sample.values))

    def _find(self, engine: Engine, target: EngineTarget, sample: TargetSample) -> bool:
        """Replicas come and go with what the source finds; False: the sample is of none."""
        engine.problem = "" if target.url else sample.problem
        if sample.outcome == "Gone":
            engine.replicas.pop(target.replica, None)
        elif target.replica not in engine.replicas:
            engine.replicas[target.replica] = Replica(ReplicaWindow(self._rules.window))
        return target.replica in engine.replicas

    def _ready(self, name: str) -> tuple[float, bool]:
        """Ready replicas, and whether they were measured (else as declared)."""
        engine = self._engines[name]
        if engine.pooled:
            return float(len(self.pools.ready(name))), True
        return ready_behind_urls(engine)

    def _settle_deaths(self, ejected: Mapping[str, bool] | None) -> None:
        """Mark engines dead, unless too many of one model died at once and no second source agrees."""
        dead = {
            name
            for name, engine in self._engines.items()
            if not engine.pooled and seems_dead(name, engine, ejected or {})
        }
        newly = {name for name in dead if not self._engines[name].dead and not self._confirmed(name, ejected)}
        capacity = self._capacity_if_alive()
        held: set[str] = set()
        for model in {model for name in newly for model in self._engines[name].models}:
            before = [name for name, one in self._engines.items() if model in one.models and not one.dead]
            total = sum(capacity[name] for name in before)
            if sum(capacity[name] for name in before if name in newly) > MASS_LOSS * total:
                held.add(model)
        self.held_models = frozenset(held)
        for name, engine in self._engines.items():
            engine.dead = name in dead and not (name in newly and engine.models & held)

    def _intervals(self, figures: Mapping[str, EngineFigures]) -> dict[str, float]:
        """Seconds between samples by source, for replicas of which only one was seen yet."""
        found: dict[str, list[float]] = {}
        for name, seen in figures.items():
            if seen.interval > 0:
                found.setdefault(self._engines[name].source, []).append(seen.interval)
        return {source: median(intervals) for source, intervals in found.items()}

    def _factors(
        self, rungs: Mapping[str, staleness.Rung], figures: Mapping[str, EngineFigures], away: Collection[str]
    ) -> dict[str, float]:
        """Staleness factors, judged among engines that one source measures."""
        by_source: dict[str, dict[str, staleness.Rung]] = {}
        for name, rung in rungs.items():
            if figures[name].at is not None:
                by_source.setdefault(self._engines[name].source, {})[name] = rung
        found: dict[str, float] = {}
        for source, ours in by_source.items():
            found |= (
                staleness.shrunk_together(ours, away=source in away) if source else staleness.relative_factors(ours)
            )
        return found

    def _windows(self, name: str, engine: Engine) -> Sequence[ReplicaWindow]:
        """Windows of its replicas; not of those that are dead or no longer ready."""
        ready = {key_of(name, endpoint) for endpoint in self.pools.ready(name)} if engine.pooled else None
        return [
            replica.window
            for key, replica in engine.replicas.items()
            if replica.live.up is not False and (ready is None or key in ready)
        ]

    def _capacity_if_alive(self) -> dict[str, float]:
        return {
            name: float(one.spec.endpoints.replicas or max(1, len(one.replicas))) * reference_rate(one.spec)
            for name, one in self._engines.items()
        }

    def _confirmed(self, name: str, ejected: Mapping[str, bool] | None) -> bool:
        if ejected is not None:
            return ejected.get(name, False)
        refused = [replica.live.refused for replica in self._engines[name].replicas.values()]
        return min(refused, default=0) >= LONE_SOURCE * self._rules.refused

    def _view(
        self, name: str, engine: Engine, seen: EngineFigures, rung: staleness.Rung, factor: float, now: float
    ) -> EngineView:
        if rung.state != engine.rung or not engine.rung_since:
            engine.rung, engine.rung_since = rung.state, now
        ready, is_measured = self._ready(name)
        ramp_up = seconds(engine.spec.ramp_up)
        present = 0.0 if engine.dead else ready
        engine.ramp = ramps.observe(engine.ramp, now, present, ramp_up, first=engine.first)
        age = 0.0 if seen.at is None else max(0.0, now - seen.at)

        def reading(value: float | None, deviation: float = 0.0) -> Reading | None:
            if value is None:
                return None
            return Reading(value=value, age=age, interval=seen.interval, deviation=deviation)

        engine.hit_share = _stepped(engine.hit_share, seen.hit_share, HIT_STEP)

        alive = engine_alive([replica.live for replica in engine.replicas.values()])
        signal = EngineSignal(
            engine=name,
            ready_replicas=Reading(value=ready) if is_measured and (engine.pooled or alive is not False) else None,
            loss_agreed=engine.pooled and self.pools.agreed(name),
            alive=False if engine.dead else (alive or None),
            ttft=reading(seen.ttft),
            tbot=reading(seen.tbot),
            running=reading(seen.running),
            waiting=reading(seen.waiting),
            kv_usage=reading(seen.kv_usage),
            request_rate=reading(seen.request_rate, seen.request_rate_deviation),
            background=reading(engine.background),
            hit_share=reading(engine.hit_share),
            penalty=Factor(value=engine.penalty.factor, reason=engine.penalty.reason)
            if _told(engine.penalty)
            else None,
            trim=self._trims.factor(name),
            ramp=_ramp_factor(engine.ramp, now, ramp_up),
            staleness=None if factor >= 1.0 else Factor(value=factor, reason=f"its metrics are {rung.state.lower()}"),
        )
        problems = {engine.problem, *(replica.problem for replica in engine.replicas.values())} - {""}
        return EngineView(
            signal, seen, rung.state, engine.rung_since, tuple(sorted(problems)), engine.source, _counted(engine)
        )


def _counted(engine: Engine) -> str:
    if engine.pooled:
        return "ready endpoints of its Service"
    by_metrics = engine.spec.endpoints.replicas is None and engine.spec.endpoints.replicas_from == "Metrics"
    known = any(replica.up is not None for replica in engine.replicas.values())
    return f"up in metric source {engine.source}" if engine.source and by_metrics and known else ""


def _stepped(old: float | None, new: float | None, step: float) -> float | None:
    return old if old is not None and new is not None and abs(new - old) < step else new


def _background(old: float | None, seen: EngineFigures, sent: Mapping[str, float] | None, name: str) -> float | None:
    """Requests/s on the engine that our routers did not send, where it is more than chance; None when unknown."""
    if sent is None or seen.steady_rate is None:
        return None
    foreign = seen.steady_rate - sent.get(name, 0.0)
    if foreign <= BACKGROUND_DEVIATIONS * sqrt(seen.steady_rate / TAU):
        return 0.0
    return _stepped(old, foreign, BACKGROUND_STEP * seen.steady_rate)


def _told(state: Penalty) -> bool:
    return state.factor < 1.0 or state.exempt


def _ramp_factor(ramp: ramps.Ramp, now: float, ramp_up: float) -> Factor | None:
    factor = ramp.factor(now, ramp_up)
    if factor >= 1.0:
        return None
    return Factor(value=factor, reason=f"new capacity is phased in over {ramp_up:g} s")
