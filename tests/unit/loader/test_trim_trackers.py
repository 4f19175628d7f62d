"""Trims of a fleet: quick where one engine is slow, none beside a penalty, none where the profile is wrong for all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_api.engine import InferenceEngineSpec
from headrace_operator.estimators.penalty import PenaltyRules
from headrace_operator.estimators.replica import EngineFigures, PageReading, ReplicaWindow
from headrace_operator.estimators.trim import HALF_LIFE
from headrace_operator.loader.engines import EngineRules, EngineTrackers
from headrace_operator.loader.expectation import measured, token_time_ratio
from headrace_operator.loader.source import EngineTarget, TargetSample
from headrace_operator.snapshot.signals import Factor, ProfileDrift
from support.engine_manifests import engine

PROFILE = {
    "reference": {"inputTokens": 500, "outputTokens": 50},
    "ttft": [{"utilizationPercent": 0, "latency": "100ms"}],
    "tbot": [{"utilizationPercent": 0, "latency": "10ms"}],
}
RULES = EngineRules(window=10.0, penalty=PenaltyRules(min_requests=10, after=30, recover_after=5, recover_step=2))


class Fleet:
    """Engines with ten requests of fifty tokens a second; tbot: seconds a token."""

    def __init__(self, names: str, rules: EngineRules = RULES, **spec: Any) -> None:
        self.trackers = EngineTrackers(rules)
        self.names = names
        self.spec = {"profile": PROFILE} | spec
        self.retarget()
        self.tokens = dict.fromkeys(names, 0.0)
        self.seconds = dict.fromkeys(names, 0.0)
        self.now = 0.0

    def retarget(self) -> None:
        self.trackers.retarget([engine(name, **self.spec) for name in self.names], {})

    def run(self, seconds: int, tbot: dict[str, float] | None = None, rate: float = 500.0) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.trackers.observe([self.sample(name, (tbot or {}).get(name, 0.01), rate) for name in self.names])

    def sample(self, name: str, latency: float, rate: float) -> TargetSample:
        self.tokens[name] += rate
        self.seconds[name] += rate * latency
        requests = self.tokens[name] / 50
        return TargetSample(
            EngineTarget(f"inf/{name}", "http://127.0.0.1:1", {}, frozenset({"m"})),
            self.now,
            "Read",
            {
                "running": 5.0,
                "finished": requests,
                "ttft_sum": requests * 0.1,
                "ttft_count": requests,
                "tbot_sum": self.seconds[name],
                "tbot_count": self.tokens[name],
            },
        )

    def factor(self, name: str) -> Factor | None:
        return self.trackers.views(self.now, None)[f"inf/{name}"].signal.trim

    def value(self, name: str) -> float:
        trim = self.factor(name)
        return 1.0 if trim is None else trim.value


def test_a_slow_engine_is_trimmed_long_before_it_is_penalised() -> None:
    fleet = Fleet("abc")
    fleet.run(20)
    assert [fleet.factor(name) for name in "abc"] == [None, None, None]
    fleet.run(12, {"a": 0.03})
    trim = fleet.factor("a")
    assert trim is not None
    assert trim.value == pytest.approx(0.55, abs=0.05)
    assert trim.reason == f"each token takes {1 / trim.value:.1f} times what its profile says"
    assert [fleet.factor(name) for name in "bc"] == [None, None]
    fleet.run(60)
    assert fleet.factor("a") is None


def test_never_together_with_a_penalty() -> None:
    """The protection page, Penalties: one fault must not count twice."""
    fleet = Fleet("abc")
    fleet.run(10)
    both = []
    for _ in range(60):
        fleet.run(1, {"a": 0.03})
        signal = fleet.trackers.views(fleet.now, None)["inf/a"].signal
        both.append((signal.trim is not None, signal.penalty is not None))
    assert (True, True) not in both
    assert {(True, False), (False, True)} <= set(both)


def test_a_profile_that_is_wrong_for_most_trims_nobody() -> None:
    """The protection page, Penalties: a model's median engine off by more than 15 %: ProfileDrift instead of trims."""
    fleet = Fleet("abc")
    fleet.run(80, {"a": 0.013, "b": 0.014, "c": 0.019})
    assert [fleet.factor(name) for name in "abc"] == [None, None, None]
    (drift,) = fleet.trackers.drifts()
    assert drift.model == "m"
    assert drift.factor == pytest.approx(1 / 1.4, abs=0.1)
    fleet.run(8, {"a": 0.0135, "b": 0.0142, "c": 0.019})
    assert fleet.trackers.drifts() == (drift,)
    fleet.run(80, {"c": 0.019})
    assert fleet.trackers.drifts() == ()
    assert fleet.value("c") == pytest.approx(0.55, abs=0.1)


def test_engines_that_went_say_nothing_of_a_profile() -> None:
    fleet = Fleet("ab")
    fleet.run(80, {"a": 0.015})
    assert fleet.trackers.drifts() == ()
    fleet.names = "a"
    fleet.retarget()
    assert [drift.model for drift in fleet.trackers.drifts()] == ["m"]


def test_without_traffic_it_decays() -> None:
    fleet = Fleet("abc")
    fleet.run(40, {"a": 0.019})
    before = fleet.value("a")
    fleet.run(1, rate=0.0)
    fleet.now += 2 * HALF_LIFE
    fleet.run(1, rate=0.0)
    assert before < 0.65 < fleet.value("a") < 1


def test_it_can_be_switched_off() -> None:
    fleet = Fleet("abc")
    fleet.run(40, {"a": 0.019})
    assert fleet.factor("a") is not None
    fleet.trackers.configure(EngineRules(window=10.0, penalty=RULES.penalty, trim=False))
    fleet.run(40, {"a": 0.019})
    assert fleet.factor("a") is None
    lost = Fleet("", EngineRules(trim=False))
    lost.trackers.restore({}, 0.0, {"inf/a": Factor(value=0.5)})
    lost.names = "a"
    lost.retarget()
    assert lost.factor("a") is None


def test_an_earlier_start_is_taken_up() -> None:
    fleet = Fleet("")
    fleet.trackers.restore({}, 0.0, {"inf/a": Factor(value=0.5)})
    fleet.names, fleet.tokens, fleet.seconds = "ab", {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}
    fleet.retarget()
    assert fleet.value("a") == 0.5
    assert fleet.value("b") == 1.0
    fleet.run(60)
    assert fleet.value("a") == 1.0


def spec(**more: Any) -> InferenceEngineSpec:
    return engine("a", **({"profile": PROFILE} | more)).spec


PER_REPLICA = {"prefillTokensPerSecond": 10_000, "decodeTokensPerSecond": 2000}
# Reference: 500/10000 + 50/2000 s = 13.3 requests/s, so at full load 667 tokens/s and a share of 2/3 in prefill.
CURVE = PROFILE | {
    "tbot": [{"utilizationPercent": 0, "latency": "6ms"}, {"utilizationPercent": 100, "latency": "30ms"}]
}
MIXED = {"capacity": {"perReplica": PER_REPLICA}, "profile": CURVE}
RATE = 1 / (500 / 10_000 + 50 / 2000)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        pytest.param(EngineFigures(tbot=0.006, mean_running=0.0), 1.0, id="idle"),
        pytest.param(
            EngineFigures(tbot=0.03, mean_running=RATE * 50 * 0.03, prompt_rate=RATE * 500), 1.0, id="at full load"
        ),
        pytest.param(
            EngineFigures(tbot=0.09, mean_running=RATE * 50 * 0.03, prompt_rate=RATE * 500 / 3),
            1 / 3,
            id="three times as slow: the same batch, a third of the prompts",
        ),
        pytest.param(
            EngineFigures(tbot=0.01, mean_running=RATE * 50 * 0.03, prompt_rate=0.0),
            1.0,
            id="no prompts: tokens come faster than the profile's mix says, and are expected to",
        ),
        pytest.param(
            EngineFigures(tbot=0.03, mean_running=RATE * 50 * 0.03, prompt_rate=RATE * 1000, hit_share=0.5),
            1.0,
            id="what the cache holds is not prefilled",
        ),
        pytest.param(
            EngineFigures(tbot=0.014, mean_running=2 * RATE * 50 * 0.03, prompt_rate=0.0),
            1.0,
            id="twice the batch of full load: the line goes on",
        ),
    ],
)
def test_ratio(figures: EngineFigures, expected: float) -> None:
    """Predicted = a + b running + c prompt tokens/s x the measured token time (the optimizer's page, Estimators)."""
    assert token_time_ratio(spec(**MIXED), 1.0, figures) == pytest.approx(expected)


@pytest.mark.parametrize("slow", [1.0, 3.0])
@pytest.mark.parametrize("prompts", [0.0, RATE * 500, RATE * 600])
def test_slowness_does_not_depend_on_the_mix(slow: float, prompts: float) -> None:
    """An engine that gets long prompts alone, or none, is as slow as its steps are."""
    busy = prompts / slow / 10_000
    figures = EngineFigures(
        at=1.0,
        tbot=slow * 0.01 / (1 - slow * busy),
        mean_running=RATE * 50 * 0.03,
        prompt_rate=prompts / slow,
        generation_rate=100.0,
    )
    assert measured(spec(**MIXED), 1.0, figures).tbot_ratio == pytest.approx(slow)


KNOWN = EngineFigures(tbot=0.01, mean_running=1.0)


@pytest.mark.parametrize(
    ("figures", "ready", "more"),
    [
        pytest.param(EngineFigures(mean_running=1.0), 1.0, {}, id="no token time"),
        pytest.param(EngineFigures(tbot=0.0, mean_running=1.0), 1.0, {}, id="token time 0"),
        pytest.param(EngineFigures(tbot=0.01), 1.0, {}, id="no concurrency"),
        pytest.param(KNOWN, 0.0, {}, id="no replica"),
        pytest.param(KNOWN, 1.0, {"profile": {"tbot": PROFILE["tbot"]}}, id="no reference"),
        pytest.param(KNOWN, 1.0, {"profile": {"reference": PROFILE["reference"]}}, id="no points"),
        pytest.param(
            KNOWN, 1.0, {"profile": PROFILE | {"reference": {"inputTokens": 5, "outputTokens": 0}}}, id="no output"
        ),
    ],
)
def test_what_is_unknown_gives_no_ratio(figures: EngineFigures, ready: float, more: dict[str, Any]) -> None:
    assert token_time_ratio(spec(**more), ready, figures) is None


def test_the_rest_of_a_window() -> None:
    window = ReplicaWindow(60.0)
    for at in range(10):
        window.observe(PageReading(float(at), {"finished": float(at * at)}))
    assert window.since(7.5).growth("finished") == 81 - 49
    assert window.since(-1.0).growth("finished") == 81
    assert window.since(9.0).growth("finished") is None


def test_drifts_are_data() -> None:
    assert (
        msgspec.json.decode(msgspec.json.encode(ProfileDrift(model="m", factor=0.8)), type=ProfileDrift).factor == 0.8
    )
