"""Demand as routers count it: samples of all routers of a front-end in, one DemandSignal a policy and model out.

On the engine-signal path. A reading of a front-end is complete when every one of its routers was tried; where some
were not read the sum is scaled by all/read and marked stale. A series that was never read is unknown, not idle.
Requests that a client repeats are counted apart: they raise demand only while the policy sheds nothing, or shedding
would feed itself. Must not do I/O or read clocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace_operator.estimators import demand as estimator
from headrace_operator.estimators.counters import Increase, Sample, increase
from headrace_operator.estimators.demand import DecayingSum, DemandEstimate
from headrace_operator.estimators.staleness import (
    HOLD_INTERVALS,
    State,
    Thresholds,
    ladder,
    observed_interval,
    thresholds,
)
from headrace_operator.loader.classes import ClassCounts
from headrace_operator.loader.source import DemandKey, RouterCounts, RouterTarget, TargetSample
from headrace_operator.snapshot.signals import DemandSignal, Reading, Share

FIELDS: Final = ("offered", "client_retries", "ended", "input_tokens", "output_tokens")
# Router processes of a front-end: the largest number seen in so many seconds.
ROUTERS_MEMORY: Final = 300.0
# Requests that must have ended before their mean tokens are believed.
MIN_ENDED: Final = 5.0
MAX_TIMES: Final = 16
# One second of few requests says little: until so many readings or requests were seen, what was declared holds.
BELIEVED_READINGS: Final = 3
BELIEVED_REQUESTS: Final = 50.0
# Seconds of reading after which a router's own requests to engines are known; and how old the last may be.
MIN_WATCHED: Final = 30.0
SENT_PATIENCE: Final = 30.0


class SourceName(NamedTuple):
    """Policy id, front-end, model."""

    policy: str
    frontend: str
    model: str


@dataclass(slots=True)
class _Router:
    last: tuple[float, RouterCounts] | None = None
    tried: bool = False
    read: bool = False
    pending: dict[str, dict[DemandKey, float]] = field(default_factory=dict)
    seconds: float = 0.0
    watched: DecayingSum = field(default_factory=DecayingSum)
    sent: dict[str, DecayingSum] = field(default_factory=dict)


@dataclass(slots=True)
class _Frontend:
    routers: dict[str, _Router] = field(default_factory=dict)
    complete_at: float | None = None
    seen: list[tuple[float, int]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Class:
    """One prompt class, by its label: what was offered, what ended, and the tokens of that."""

    offered: DecayingSum = field(default_factory=DecayingSum)
    ended: DecayingSum = field(default_factory=DecayingSum)
    input_tokens: DecayingSum = field(default_factory=DecayingSum)
    output_tokens: DecayingSum = field(default_factory=DecayingSum)

    def counts(self) -> ClassCounts:
        return ClassCounts(self.offered.value, self.ended.value, self.input_tokens.value, self.output_tokens.value)


@dataclass(slots=True)
class _Source:
    estimate: DemandEstimate | None = None
    readings: int = 0
    requests: float = 0.0
    priorities: dict[str, DecayingSum] = field(default_factory=dict)
    classes: dict[str, _Class] = field(default_factory=dict)
    ended: DecayingSum = field(default_factory=DecayingSum)
    input_tokens: DecayingSum = field(default_factory=DecayingSum)
    output_tokens: DecayingSum = field(default_factory=DecayingSum)
    state: str = "Unknown"
    state_since: float = 0.0

    @property
    def believed(self) -> bool:
        return self.readings >= BELIEVED_READINGS or self.requests >= BELIEVED_REQUESTS


class _Counted(NamedTuple):
    counter: str
    priority: str
    prompt_class: str


class DemandView(NamedTuple):
    """One source now; signal is None once it is unknown. classes: what was counted lately, by prompt class's label."""

    name: SourceName
    signal: DemandSignal | None
    state: State
    state_since: float
    classes: Mapping[str, ClassCounts]


class DemandTrackers:
    """State of all front-ends' routers and of all sources between samples."""

    def __init__(self) -> None:
        self._frontends: dict[str, _Frontend] = {}
        self._sources: dict[SourceName, _Source] = {}
        self._found: frozenset[str] = frozenset()

    def retarget(self, routers: Iterable[RouterTarget]) -> None:
        """Which routers there are; all of a front-end's. One without a url: those that its metric source finds."""
        wanted: dict[str, set[str]] = {}
        found = set()
        for router in routers:
            wanted.setdefault(router.frontend, set()).add(router.url)
            if not router.url:
                found.add(router.frontend)
                known = self._frontends.get(router.frontend)
                wanted[router.frontend] = set(known.routers if known and router.frontend in self._found else ())
        self._found = frozenset(found)
        for name in [name for name in self._frontends if name not in wanted]:
            del self._frontends[name]
        for name, urls in wanted.items():
            frontend = self._frontends.setdefault(name, _Frontend())
            frontend.routers = {url: frontend.routers.get(url, _Router()) for url in sorted(urls)}

    def observe(self, samples: Iterable[TargetSample], shedding: Collection[str]) -> None:
        """Take samples of routers; shedding: ids of policies that shed now."""
        for sample in samples:
            if not isinstance(sample.target, RouterTarget):
                continue
            frontend = self._frontends.get(sample.target.frontend)
            if frontend is None:
                continue
            if sample.target.frontend in self._found and sample.target.url:
                _appear(frontend, sample.target.url, gone=sample.outcome == "Gone")
            router = frontend.routers.get(sample.target.url)
            if router is not None:
                _take(router, sample)
            if frontend.routers and all(one.tried for one in frontend.routers.values()):
                self._flush(sample.target.frontend, frontend, sample.at, shedding)

    def _flush(self, name: str, frontend: _Frontend, at: float, shedding: Collection[str]) -> None:
        """All routers were tried: one reading of the front-end."""
        read = [router for router in frontend.routers.values() if router.read]
        timed = [router for router in read if router.seconds > 0]
        frontend.seen = [(when, count) for when, count in frontend.seen if when > at - ROUTERS_MEMORY]
        if read:
            frontend.seen.append((at, len(read)))
        if timed:
            # The first reading's own span says how often more will come.
            before = frontend.times[-MAX_TIMES:] or [at - max(router.seconds for router in timed)]
            frontend.times = [*before, at]
            scale = len(frontend.routers) / len(timed)
            if len(timed) == len(frontend.routers):
                frontend.complete_at = at
            self._advance(name, at, timed, scale, shedding)
        for router in frontend.routers.values():
            router.tried, router.read, router.pending, router.seconds = False, False, {}, 0.0

    def _advance(
        self, frontend: str, at: float, routers: list[_Router], scale: float, shedding: Collection[str]
    ) -> None:
        span = max(router.seconds for router in routers)
        amounts: dict[SourceName, dict[_Counted, float]] = {}
        for router in routers:
            for counter, by_key in router.pending.items():
                for key, amount in by_key.items():
                    source = amounts.setdefault(SourceName(key.policy, frontend, key.model), {})
                    entry = _Counted(counter, key.priority, key.prompt_class)
                    # Rates add up over routers although their intervals differ a little.
                    source[entry] = source.get(entry, 0.0) + scale * amount * span / router.seconds
        for name, counted in amounts.items():
            _advance_source(
                self._sources.setdefault(name, _Source()), at, span, counted, retries=name.policy not in shedding
            )

    def routers_seen(self) -> tuple[tuple[str, int], ...]:
        """(front-end, router processes): the largest number in five minutes, where any was seen."""
        return tuple(
            (name, max(count for _, count in frontend.seen))
            for name, frontend in sorted(self._frontends.items())
            if frontend.seen
        )

    def ejected(self) -> dict[str, bool] | None:
        """Which engines some router can't connect to; None when no router's page was ever read."""
        pages = [router.last for frontend in self._frontends.values() for router in frontend.routers.values()]
        counts = [page[1].ejected for page in pages if page is not None]
        if not counts:
            return None
        return {name: True for ejected in counts for name, number in ejected.items() if number > 0}

    def sent_rates(self, frontends: Collection[str], now: float) -> Mapping[str, float] | None:
        """Requests/s that these front-ends' routers sent to each engine over the last minutes (absent: none).

        None unless all of their routers were read all the while: what we did not see can't be told from others' work.
        """
        rates: dict[str, float] = {}
        for name in frontends:
            frontend = self._frontends.get(name)
            if frontend is None or frontend.complete_at is None:
                return None
            patience = max(SENT_PATIENCE, HOLD_INTERVALS * observed_interval(frontend.times))
            if now - frontend.complete_at > patience or not frontend.routers:
                return None
            for router in frontend.routers.values():
                if router.watched.value < MIN_WATCHED:
                    return None
                for engine, sent in router.sent.items():
                    rates[engine] = rates.get(engine, 0.0) + sent.value / router.watched.value
        return rates

    def views(self, now: float, limits: Mapping[str, Thresholds]) -> list[DemandView]:
        """All sources at ``now``; limits: thresholds by policy id (a source of no such policy is left out)."""
        return [
            self._view(name, source, now, limits[name.policy])
            for name, source in sorted(self._sources.items())
            if name.policy in limits and name.frontend in self._frontends and source.believed
        ]

    def _view(self, name: SourceName, source: _Source, now: float, limits: Thresholds) -> DemandView:
        estimate = source.estimate
        assert estimate is not None
        frontend = self._frontends[name.frontend]
        interval = observed_interval(frontend.times)
        widened = thresholds(limits.hold, limits.degrade, interval)
        age = max(0.0, now - estimate.at)
        complete = age if frontend.complete_at is None else now - frontend.complete_at
        # A scaled sum is stale, but better than what was declared long ago: it stays held while it is renewed.
        age = max(age, min(complete, widened.degrade))
        state = ladder(age, widened).state
        if state != source.state or not source.state_since:
            source.state, source.state_since = state, now
        known = state in ("Fresh", "Held")
        return DemandView(
            name,
            _signal(name, source, estimate, age, interval) if known else None,
            state,
            source.state_since,
            {label: one.counts() for label, one in source.classes.items()},
        )


def _appear(frontend: _Frontend, url: str, *, gone: bool) -> None:
    """Routers come and go with what the metric source finds."""
    if gone:
        frontend.routers.pop(url, None)
    else:
        frontend.routers.setdefault(url, _Router())


def _take(router: _Router, sample: TargetSample) -> None:
    router.tried = True
    if sample.outcome != "Read" or sample.counts is None:
        return
    counts, last = sample.counts, router.last
    if last is not None and not sample.at > last[0]:
        return
    router.last = (sample.at, counts)
    router.read = True
    if last is None:
        return
    grown = _growth(last, (sample.at, counts))
    if grown is None:
        router.pending, router.seconds = {}, 0.0
        return
    router.seconds += sample.at - last[0]
    router.watched = router.watched.add(sample.at, sample.at - last[0])
    for engine, count in counts.sent.items():
        more = max(0.0, count - last[1].sent.get(engine, 0.0))
        router.sent[engine] = router.sent.get(engine, DecayingSum()).add(sample.at, more)
    for counter, by_key in grown.items():
        pending = router.pending.setdefault(counter, {})
        for key, amount in by_key.items():
            pending[key] = pending.get(key, 0.0) + amount


def _growth(
    earlier: tuple[float, RouterCounts], later: tuple[float, RouterCounts]
) -> dict[str, dict[DemandKey, float]] | None:
    """Increases of all counters between two pages of one process; None when the process was restarted."""
    grown: dict[str, dict[DemandKey, float]] = {}
    for counter in FIELDS:
        before: Mapping[DemandKey, float] = getattr(earlier[1], counter)
        after: Mapping[DemandKey, float] = getattr(later[1], counter)
        if not before.keys() <= after.keys():
            return None
        grown[counter] = {}
        for key, value in after.items():
            # A label set that this process had not shown yet started at zero after the last page.
            more = increase(Sample(earlier[0], before.get(key, 0.0)), Sample(later[0], value))
            if more is None:
                return None
            grown[counter][key] = more.amount
    return grown


def _advance_source(
    source: _Source, at: float, span: float, counted: Mapping[_Counted, float], *, retries: bool
) -> None:
    def total(counter: str) -> float | None:
        amounts = [amount for entry, amount in counted.items() if entry.counter == counter]
        return sum(amounts) if amounts else None

    offered = total("offered")
    if offered is not None:
        if retries:
            offered += total("client_retries") or 0.0
        source.estimate = estimator.observe(source.estimate, at, Increase(offered, span))
        source.readings += 1
        source.requests += offered
        by_priority: dict[str, float] = {}
        for entry, amount in counted.items():
            if entry.counter == "offered":
                by_priority[entry.priority] = by_priority.get(entry.priority, 0.0) + amount
        for priority, amount in by_priority.items():
            source.priorities[priority] = source.priorities.get(priority, DecayingSum()).add(at, amount)
    _advance_classes(source, at, counted)
    ended = total("ended")
    if ended is None:
        ended = total("offered")
    if ended is not None:
        source.ended = source.ended.add(at, ended)
        source.input_tokens = source.input_tokens.add(at, total("input_tokens") or 0.0)
        source.output_tokens = source.output_tokens.add(at, total("output_tokens") or 0.0)


def _advance_classes(source: _Source, at: float, counted: Mapping[_Counted, float]) -> None:
    by_class: dict[str, dict[str, float]] = {}
    for entry, amount in counted.items():
        amounts = by_class.setdefault(entry.prompt_class, {})
        amounts[entry.counter] = amounts.get(entry.counter, 0.0) + amount
    for label, amounts in by_class.items():
        one = source.classes.setdefault(label, _Class())
        one.offered = one.offered.add(at, amounts.get("offered", 0.0))
        one.ended = one.ended.add(at, amounts.get("ended", 0.0))
        one.input_tokens = one.input_tokens.add(at, amounts.get("input_tokens", 0.0))
        one.output_tokens = one.output_tokens.add(at, amounts.get("output_tokens", 0.0))


def _signal(name: SourceName, source: _Source, estimate: DemandEstimate, age: float, interval: float) -> DemandSignal:
    def mean(tokens: DecayingSum) -> Reading | None:
        if source.ended.value < MIN_ENDED or tokens.value <= 0:
            return None
        return Reading(value=tokens.value / source.ended.value, age=age, interval=interval)

    total = sum(amount.value for amount in source.priorities.values())
    shares = tuple(
        Share(name=priority, share=min(1.0, amount.value / total))
        for priority, amount in sorted(source.priorities.items())
        if total > 0 and priority
    )
    return DemandSignal(
        policy=name.policy,
        frontend=name.frontend,
        model=name.model,
        requests_per_second=Reading(value=estimate.level, age=age, deviation=estimate.deviation, interval=interval),
        input_tokens=mean(source.input_tokens),
        output_tokens=mean(source.output_tokens),
        priorities=shares,
    )
