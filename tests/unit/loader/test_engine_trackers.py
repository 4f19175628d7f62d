"""Samples of engines to signals: unknown is not idle, death needs proof, slow ones are penalised, never all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace_operator.estimators.liveness import Outcome
from headrace_operator.estimators.penalty import PenaltyRules
from headrace_operator.estimators.replica import Signal
from headrace_operator.loader.engines import EngineRules, EngineTrackers, EngineView
from headrace_operator.loader.source import EngineTarget, TargetSample
from headrace_operator.snapshot.signals import Factor
from support.engine_manifests import engine

RULES = EngineRules(
    refused=2, window=10.0, penalty=PenaltyRules(min_requests=10, after=5, recover_after=5, recover_step=2, expiry=60)
)


def target(name: str, url: str = "http://127.0.0.1:1") -> EngineTarget:
    return EngineTarget(f"inf/{name}", url, {}, frozenset({"m"}))


def sample(
    name: str, at: float, outcome: Outcome = "Read", url: str = "http://127.0.0.1:1", **values: float
) -> TargetSample:
    known: dict[Signal, float] = dict(values)  # type: ignore[arg-type]
    return TargetSample(target(name, url), at, outcome, known, problem="" if outcome == "Read" else "no page")


class Fleet:
    """Engines whose counters advance evenly; tbot is seconds a token."""

    def __init__(self, names: Iterable[str], **spec: Any) -> None:
        self.trackers = EngineTrackers(RULES)
        self.names = list(names)
        self.trackers.retarget([engine(name, **spec) for name in self.names], {})
        self.tokens = dict.fromkeys(self.names, 0.0)
        self.seconds = dict.fromkeys(self.names, 0.0)
        self.now = 0.0

    def run(
        self, seconds: int, tbot: dict[str, float] | None = None, dead: Iterable[str] = ()
    ) -> dict[str, EngineView]:
        views: dict[str, EngineView] = {}
        for _ in range(seconds):
            self.now += 1.0
            samples = []
            for name in self.names:
                if name in set(dead):
                    samples.append(sample(name, self.now, "Refused"))
                    continue
                latency = (tbot or {}).get(name, 0.01)
                self.tokens[name] += 500.0
                self.seconds[name] += 500.0 * latency
                tokens = self.tokens[name]
                samples.append(
                    sample(
                        name,
                        self.now,
                        running=5.0,
                        finished=tokens / 50,
                        ttft_sum=tokens / 50 * 0.1,
                        ttft_count=tokens / 50,
                        tbot_sum=self.seconds[name],
                        tbot_count=tokens,
                    )
                )
            self.trackers.observe(samples)
            views = self.trackers.views(self.now, None)
        return views


def factor(views: dict[str, EngineView], name: str) -> float:
    penalty = views[f"inf/{name}"].signal.penalty
    return 1.0 if penalty is None else penalty.value


def test_never_read_is_unknown_and_not_idle() -> None:
    """Case STA-01: a and b were read, c never: c has no values, keeps its declared capacity, and says Unknown.

    https://github.com/llm-d/llm-d-router/pull/2848
    """
    trackers = EngineTrackers(RULES)
    trackers.retarget([engine(name) for name in "abc"], {})
    trackers.observe([sample(name, 1.0, running=8.0, waiting=4.0) for name in "ab"])
    views = trackers.views(2.0, None)
    lost = views["inf/c"]
    assert (lost.state, lost.signal.waiting, lost.signal.running, lost.signal.alive) == ("Unknown", None, None, None)
    assert lost.signal.staleness is None
    known = views["inf/a"].signal.waiting
    assert known is not None
    assert (known.value, known.age) == (4.0, 1.0)


def test_a_slow_engine_is_penalised_and_recovers() -> None:
    fleet = Fleet("abc")
    assert factor(fleet.run(12), "a") == 1.0
    views = fleet.run(14, {"a": 0.03})
    assert 0.3 <= factor(views, "a") <= 0.4
    assert factor(views, "b") == 1.0
    penalty = views["inf/a"].signal.penalty
    assert penalty is not None
    assert "times its profile" in penalty.reason
    assert factor(fleet.run(40), "a") == 1.0


def test_all_slow_alike_is_the_new_normal() -> None:
    views = Fleet("abc").run(30, dict.fromkeys("abc", 0.05))
    assert [factor(views, name) for name in "abc"] == [1.0, 1.0, 1.0]


def test_half_of_a_model_at_most() -> None:
    views = Fleet("abcde").run(40, {"a": 0.05, "b": 0.05})
    assert [factor(views, name) < 1 for name in "abcde"] == [True, True, False, False, False]
    views = Fleet("ab").run(40, {"a": 0.05, "b": 0.011})
    assert factor(views, "a") < 1
    lone = Fleet("a").run(40, {"a": 0.05})["inf/a"].signal.penalty
    assert lone is not None
    assert (lone.value, "not penalised" in lone.reason) == (1.0, True)


def test_penalties_of_an_earlier_start_hold_until_samples_say_otherwise() -> None:
    fleet = Fleet([])
    fleet.trackers.restore({"inf/a": Factor(value=0.35, reason="TBOT 3 times its profile")}, 0.0)
    fleet.names = ["a", "b"]
    fleet.tokens, fleet.seconds = {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}
    fleet.trackers.retarget([engine("a"), engine("b")], {})
    assert factor(fleet.run(2), "a") == 0.35
    assert factor(fleet.run(40), "a") == 1.0


def test_the_dead_of_an_earlier_start_stay_dead_until_one_answers() -> None:
    """Seen in a session: a restart took a dead engine, half of its model, for a mass loss and gave it weight."""
    fleet = Fleet([], rampUp="8s")
    fleet.trackers.restore({}, 0.0, dead=["inf/b", "inf/gone"])
    fleet.names = ["a", "b"]
    fleet.tokens, fleet.seconds = {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}
    fleet.trackers.retarget([engine("a"), engine("b")], {})
    assert fleet.trackers.views(0.0, None)["inf/b"].signal.alive is False
    for _ in range(10):
        views = fleet.run(1, dead="b")
        assert views["inf/b"].signal.alive is False
        assert views["inf/a"].signal.alive is True
        assert fleet.trackers.held_models == frozenset()
    assert fleet.run(1)["inf/b"].signal.alive is True


def test_refused_twice_is_dead_and_a_read_revives_with_a_ramp() -> None:
    fleet = Fleet("abc", rampUp="8s")
    fleet.run(3)
    assert fleet.run(1, dead="a")["inf/a"].signal.alive is None
    assert fleet.run(1, dead="a")["inf/a"].signal.alive is False
    back = fleet.run(1)["inf/a"].signal
    assert back.alive is True
    assert back.ramp is not None
    assert back.ramp.value == 0.125
    assert fleet.run(9)["inf/a"].signal.ramp is None


def test_mass_loss_needs_a_second_source() -> None:
    """The API page, Mass loss: over half of a model's capacity gone at once counts when the routers agree."""
    fleet = Fleet("abc")
    fleet.run(3)
    views = fleet.run(2, dead="ab")
    assert [views[f"inf/{name}"].signal.alive for name in "abc"] == [None, None, True]
    assert fleet.trackers.held_models == {"m"}
    views = fleet.trackers.views(fleet.now, {"inf/a": True, "inf/b": True})
    assert [views[f"inf/{name}"].signal.alive for name in "abc"] == [False, False, True]
    assert fleet.trackers.held_models == frozenset()


def test_mass_loss_without_routers_counts_after_a_while() -> None:
    fleet = Fleet("abc")
    fleet.run(3)
    assert [view.signal.alive for view in fleet.run(5, dead="abc").values()] == [None] * 3
    assert [view.signal.alive for view in fleet.run(1, dead="abc").values()] == [False] * 3


def test_metrics_down_for_ten_minutes_takes_nothing_out() -> None:
    """Case STA-02: the source of a pool's metrics is down; nothing is dead, nothing shrinks, states say it.

    https://github.com/llm-d/llm-d-router/issues/2408
    """
    for names in ("a", "abc"):
        fleet = Fleet(names)
        fleet.run(3)
        for at in range(4, 604, 10):
            fleet.trackers.observe([sample(name, float(at), "Failed") for name in names])
        views = fleet.trackers.views(604.0, None)
        assert {view.state for view in views.values()} == {"Unknown"}
        assert {view.signal.staleness for view in views.values()} == {None}
        assert {view.signal.alive for view in views.values()} == {None}
        fleet.now = 604.0
        assert {view.state for view in fleet.run(1).values()} == {"Fresh"}


def test_one_engine_whose_metrics_are_lost_counts_for_less() -> None:
    fleet = Fleet("abc")
    fleet.run(3)
    for _ in range(300):
        fleet.now += 1.0
        fleet.trackers.observe(
            [sample(name, fleet.now, running=0.0, finished=900.0) for name in "ab"]
            + [sample("c", fleet.now, "Answered")]
        )
    stale = fleet.trackers.views(fleet.now, None)["inf/c"]
    assert stale.signal.staleness is not None
    assert stale.signal.staleness.value == 0.5
    assert stale.problems == ("http://127.0.0.1:1: no page",)


URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.mark.parametrize(
    ("endpoints", "dead", "ready"),
    [
        pytest.param({"urls": URLS}, 0, 2.0, id="one per url"),
        pytest.param({"urls": URLS}, 1, 1.0, id="less those that refuse"),
        pytest.param({"urls": URLS, "replicas": 40}, 0, None, id="declared"),
        pytest.param({"urls": URLS, "replicas": 40}, 1, 20.0, id="declared, less the dead part"),
        pytest.param({"urls": URLS, "replicasFrom": "Metrics"}, 1, 1.0, id="as read"),
    ],
)
def test_ready_replicas(endpoints: dict[str, Any], dead: int, ready: float | None) -> None:
    trackers = EngineTrackers(RULES)
    trackers.retarget([engine("a", endpoints=endpoints)], {})
    for at in (1.0, 2.0, 3.0):
        trackers.observe(
            sample("a", at, "Refused" if place < dead else "Read", url, running=1.0) for place, url in enumerate(URLS)
        )
    found = trackers.views(3.0, None)["inf/a"].signal.ready_replicas
    assert (found.value if found else None) == ready


def test_replicas_from_metrics_before_anything_was_read() -> None:
    trackers = EngineTrackers(RULES)
    trackers.retarget([engine("a", endpoints={"urls": URLS, "replicasFrom": "Metrics"})], {})
    assert trackers.views(0.0, None)["inf/a"].signal.ready_replicas is None


def test_engines_and_urls_come_and_go() -> None:
    trackers = EngineTrackers(RULES)
    trackers.retarget([engine("a")], {})
    trackers.observe([sample("ghost", 1.0, running=1.0), sample("a", 1.0, url="http://gone", running=1.0)])
    trackers.retarget([engine("a", "http://127.0.0.1:2"), engine("b")], {})
    trackers.configure(EngineRules(window=5.0))
    views = trackers.views(2.0, None)
    assert set(views) == {"inf/a", "inf/b"}
    late = views["inf/b"].signal.ramp
    assert late is not None
    assert late.value == 0.125
    trackers.retarget([], {})
    assert trackers.views(3.0, None) == {}


def test_work_of_others_is_told_when_it_is_more_than_chance() -> None:
    """The API page, Several policies: an engine's own request rate minus ours is background."""
    fleet = Fleet("a")
    fleet.run(20)

    def background(sent: dict[str, float] | None) -> float | None:
        found = fleet.trackers.views(fleet.now, None, sent)["inf/a"].signal.background
        return None if found is None else found.value

    assert background({"inf/a": 10.0}) is None
    fleet.run(60)
    assert background(None) is None
    assert background({"inf/a": 9.5}) == 0.0
    assert background({"inf/a": 6.0}) == pytest.approx(4.0)
    assert background({"inf/a": 5.5}) == pytest.approx(4.0)
    assert background({}) == pytest.approx(10.0)


def test_a_hit_share_that_hardly_moves_does_not_move() -> None:
    trackers = EngineTrackers(RULES)
    trackers.retarget([engine("a")], {})
    shares = []
    for at, share in enumerate((0.5, 0.51, 0.49, 0.55)):
        trackers.observe([sample("a", float(at), hit_rate=share)])
        found = trackers.views(float(at), None)["inf/a"].signal.hit_share
        assert found is not None
        shares.append(found.value)
    assert shares == [0.5, 0.5, 0.5, 0.55]


class TestOfAMetricSource:
    """Engines behind urls that a metric source knows: counted by what is up, dead only by two words."""

    def trackers(self, **endpoints: Any) -> EngineTrackers:
        trackers = EngineTrackers(RULES)
        ends = {"urls": ["http://far:1"], "replicasFrom": "Metrics"} | endpoints
        spec = engine("a", endpoints=ends, metrics={"selector": {"job": "j"}})
        trackers.retarget([spec], {}, {}, {"inf/a": "s"})
        return trackers

    def seen(self, trackers: EngineTrackers, at: float, **outcomes: Outcome) -> None:
        samples = [
            TargetSample(
                EngineTarget("inf/a", url, {}, frozenset({"m"}), "s", "", (("job", "j"),)),
                at,
                outcome,
                {"running": 1.0} if outcome == "Read" else {},
                problem="" if outcome == "Read" else "up is 0",
            )
            for url, outcome in outcomes.items()
        ]
        trackers.observe(samples)

    def ready(self, trackers: EngineTrackers, at: float, ejected: dict[str, bool] | None = None) -> float | None:
        signal = trackers.views(at, ejected)["inf/a"].signal
        return None if signal.ready_replicas is None else signal.ready_replicas.value

    def test_replicas_are_what_is_up(self) -> None:
        trackers = self.trackers()
        assert self.ready(trackers, 0.0) is None
        self.seen(trackers, 1.0, x="Read", y="Read", z="Read")
        assert self.ready(trackers, 1.0) == 3.0
        self.seen(trackers, 2.0, x="Read", y="Down", z="Gone")
        assert self.ready(trackers, 2.0) == 1.0
        assert trackers.views(2.0, None)["inf/a"].counted == "up in metric source s"

    def test_a_number_wins_over_what_is_up(self) -> None:
        trackers = self.trackers(replicas=9)
        self.seen(trackers, 1.0, x="Read", y="Down")
        assert self.ready(trackers, 1.0) is None  # as declared
        assert trackers.views(1.0, None)["inf/a"].counted == ""

    @pytest.mark.parametrize(
        ("ejected", "alive"), [(None, None), ({}, None), ({"inf/b": True}, None), ({"inf/a": True}, False)]
    )
    def test_down_is_dead_only_with_the_routers_word(self, ejected: dict[str, bool] | None, alive: bool | None) -> None:
        trackers = self.trackers()
        self.seen(trackers, 1.0, x="Down")
        assert trackers.views(1.0, ejected)["inf/a"].signal.alive is alive

    def test_back_with_the_first_page(self) -> None:
        trackers = self.trackers()
        self.seen(trackers, 1.0, x="Down")
        assert trackers.views(1.0, {"inf/a": True})["inf/a"].signal.alive is False
        self.seen(trackers, 2.0, x="Read")
        assert trackers.views(2.0, {"inf/a": True})["inf/a"].signal.alive is True

    def test_samples_of_another_source_are_not_its_own(self) -> None:
        trackers = self.trackers()
        trackers.observe([sample("a", 1.0, url="http://far:1", running=5.0)])
        assert trackers.views(1.0, None)["inf/a"].signal.running is None
