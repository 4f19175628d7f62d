"""The ladder of a metric source over time, on an argument clock: calm, away, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_operator.estimators.staleness import Rung, shrunk_together
from headrace_operator.loader.config import OperatorConfig, RoutersConfig
from headrace_operator.loader.config_places import MetricSource
from headrace_operator.loader.loader import Loader
from headrace_operator.loader.metric_names import names_of
from headrace_operator.loader.prometheus_http import RangeSeries
from headrace_operator.loader.prometheus_match import Index, read_ups
from headrace_operator.loader.prometheus_read import Answers, Reader
from headrace_operator.loader.source import (
    DemandKey,
    EngineTarget,
    PageTarget,
    RouterCounts,
    RouterTarget,
    SourceTarget,
    TargetSample,
)
from headrace_operator.snapshot.signals import Signals
from support.engine_manifests import engine, policy

CONFIG = OperatorConfig(
    metric_sources=(MetricSource(name="s", url="http://s"),),
    default_source="s",
    routers=(RoutersConfig(frontend="fe-a"),),
)
SELF = SourceTarget("s", "http://s")
POLL = 5.0


class Prometheus:
    """A Prometheus that scrapes two engines and a router each ``interval`` seconds, at moments of their own."""

    def __init__(self, interval: float, lag: float = 0.6) -> None:
        self.interval, self.lag = interval, lag
        self.reader = Reader("s", ())
        self.labels = {
            "a": {"job": "vllm", "instance": "a:1"},
            "b": {"job": "vllm", "instance": "b:1"},
            "r": {"job": "router", "instance": "r:1"},
        }

    def scrapes(self, name: str, now: float, window: float) -> Iterator[float]:
        """Times of scrapes in the window that can be seen at ``now``."""
        offset = {"a": 0.0, "b": 0.4, "r": 0.9}[name] * self.interval
        number = int((now - window - offset) / self.interval)
        while (at := offset + number * self.interval) <= now - self.lag:
            if at >= max(0.0, now - window):
                yield at
            number += 1

    def answer(self, index: Index, now: float, window: float = 90.0) -> list[TargetSample]:
        found: list[RangeSeries] = []
        ups: list[RangeSeries] = []
        for name, labels in self.labels.items():
            times = list(self.scrapes(name, now, window))
            ups.append(RangeSeries({"__name__": "up", **labels}, [(at, "1") for at in times]))
            for metric, more, rate in self.metrics(name):
                values = [(at, f"{rate * at if rate else 3}") for at in times]
                found.append(RangeSeries({"__name__": metric, **labels, **more}, values))
        return [
            *self.reader.read(index, Answers(read_ups(ups), found, now, 0.0, True)),
            TargetSample(SELF, now, "Read"),
        ]

    def metrics(self, name: str) -> list[tuple[str, dict[str, str], float]]:
        if name == "r":
            labels = {"policy_namespace": "inf", "policy": "chat", "frontend": "fe-a", "model": "m"}
            return [("headrace_offered_requests_total", labels, 20.0)]
        return [
            ("vllm:num_requests_running", {"model_name": "m"}, 0.0),
            ("vllm:request_success_total", {"model_name": "m", "finished_reason": "stop"}, 10.0),
        ]


class World:
    def __init__(self, interval: float) -> None:
        self.loader = Loader(CONFIG)
        found = self.loader.configure([engine("a", "http://a:1"), engine("b", "http://b:1")], [policy()], CONFIG, {})
        self.index = Index(found)
        self.prometheus = Prometheus(interval)
        self.now = 0.0

    def poll(self, *, away: str = "") -> Signals:
        self.now += POLL
        if away:
            self.loader.observe([TargetSample(SELF, self.now, "Failed", problem=away)])
        else:
            self.loader.observe(self.prometheus.answer(self.index, self.now))
        return self.loader.signals(self.now, self.now)


def states(signals: Signals) -> dict[str, str]:
    return {state.name: state.state for state in signals.states}


ALL = {
    "metric source s": "Fresh",
    "engine inf/a from s": "Fresh",
    "engine inf/b from s": "Fresh",
    "demand inf/chat fe-a m": "Fresh",
}


@pytest.mark.parametrize("interval", [5.0, 15.0, 30.0, 60.0])
def test_ten_calm_minutes(interval: float) -> None:
    """At a scrape interval of 30 s SignalsFresh doesn't flip: no state changes once everything was read."""
    world = World(interval)
    while states(world.poll()) != ALL:
        assert world.now < 5 * interval + 10
    while world.now < 600 + 5 * interval:
        assert states(world.poll()) == ALL, world.now


def test_an_engine_that_appears_with_one_sample_is_not_stale() -> None:
    """Its own interval is not known yet; that of its source is."""
    world = World(30.0)
    hidden = world.prometheus.labels.pop("b")
    while world.now < 200:
        world.poll()
    world.prometheus.labels["b"] = hidden
    world.prometheus.reader = Reader("s", ())
    seen = False
    while world.now < 400:
        told = states(world.poll())["engine inf/b from s"]
        seen = seen or told == "Fresh"
        assert not seen or told == "Fresh", world.now
    assert seen


def test_away_and_back() -> None:
    """Prometheus stops: held, then all shrink alike, then declared values; and it is said which source is away."""
    world = World(15.0)
    while world.now < 120:
        signals = world.poll()
    assert states(signals) == ALL
    stopped, factors, told = world.now, [], []
    while world.now < stopped + 420:
        signals = world.poll(away="no answer within 5 s")
        told.append(states(signals)["engine inf/a from s"])
        factors.append({one.engine: 1.0 if one.staleness is None else one.staleness.value for one in signals.engines})
    assert [state for at, state in enumerate(told) if at == 0 or told[at - 1] != state] == [
        *("Fresh", "Held", "Widened", "Unknown"),
    ]
    assert all(one["inf/a"] == one["inf/b"] for one in factors)
    shrunk = [one["inf/a"] for one, state in zip(factors, told, strict=True) if state == "Widened"]
    assert shrunk == sorted(shrunk, reverse=True)
    assert set(shrunk) - {1.0} == {0.875, 0.75, 0.625, 0.5}  # 1 while the freshest of them is still held
    assert factors[-1] == {"inf/a": 1.0, "inf/b": 1.0}
    assert not signals.demand
    assert states(signals)["metric source s"] == "Unknown"
    assert world.loader.views["inf/a"].problems == ("metric source s: no answer within 5 s",)
    while states(world.poll()) != ALL:
        assert world.now < stopped + 420 + 90
    assert world.loader.views["inf/a"].problems == ()


def test_one_engine_that_is_not_seen_shrinks_alone() -> None:
    rungs = {"a": Rung("Fresh", 1.0), "b": Rung("Fresh", 1.0), "c": Rung("Widened", 0.75)}
    assert shrunk_together(rungs, away=False) == {"a": 1.0, "b": 1.0, "c": 0.75}
    assert shrunk_together(rungs, away=True) == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_missing_metrics_take_no_engine_out() -> None:
    """Case STA-02: one engine stays routable whatever becomes of its metrics; no factor is ever zero.

    https://github.com/llm-d/llm-d-router/issues/2408
    """
    alone = {"a": Rung("Widened", 0.5)}
    assert shrunk_together(alone, away=True) == {"a": 0.5}
    assert shrunk_together({"a": Rung("Unknown", 0.5)}, away=True) == {"a": 1.0}


class TestDemandOfRoutersThatAreFound:
    """Front-ends whose routers the metric source finds: all that are up are all."""

    def samples(self, *routers: tuple[str, float, str]) -> list[TargetSample]:
        return [
            TargetSample(
                RouterTarget("fe-a", url, "s"),
                at,
                outcome,  # type: ignore[arg-type]
                counts=RouterCounts(offered={DemandKey("inf/chat", "m", ""): 10 * at}) if outcome == "Read" else None,
            )
            for url, at, outcome in routers
        ]

    def loader(self) -> tuple[Loader, tuple[PageTarget, ...]]:
        loader = Loader(CONFIG)
        return loader, loader.configure([engine("a", "http://a:1")], [policy()], CONFIG, {})

    def rate(self, loader: Loader, now: float) -> tuple[float, str]:
        signals = loader.signals(now, now)
        state = next(state.state for state in signals.states if state.name.startswith("demand"))
        return signals.demand[0].requests_per_second.value, state

    def run(self, loader: Loader, since: int, until: int, *names: tuple[str, str]) -> None:
        for step in range(since, until):
            loader.observe(self.samples(*((name, step * 15.0, outcome) for name, outcome in names)))

    def test_their_sum(self) -> None:
        loader, found = self.loader()
        assert RouterTarget("fe-a", "", "s") in found
        assert EngineTarget("inf/a", "http://a:1", names_of("vLLM"), frozenset({"m"}), "s") in found
        self.run(loader, 1, 8, ("r1", "Read"), ("r2", "Read"))
        assert self.rate(loader, 105.0) == (pytest.approx(20.0), "Fresh")

    def test_one_that_is_down_is_scaled_and_held(self) -> None:
        loader, _ = self.loader()
        self.run(loader, 1, 8, ("r1", "Read"), ("r2", "Read"))
        self.run(loader, 8, 20, ("r1", "Read"), ("r2", "Down"))
        assert self.rate(loader, 285.0) == (pytest.approx(20.0), "Held")

    def test_one_that_left_is_missed_no_more(self) -> None:
        loader, _ = self.loader()
        self.run(loader, 1, 8, ("r1", "Read"), ("r2", "Read"))
        self.run(loader, 8, 9, ("r1", "Read"), ("r2", "Gone"))
        self.run(loader, 9, 40, ("r1", "Read"))
        rate, state = self.rate(loader, 585.0)
        assert state == "Fresh"
        assert rate == pytest.approx(10.0, abs=1.0)
