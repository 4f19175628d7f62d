"""The loader as a whole: targets from resources, signals with states that do not wobble."""

from __future__ import annotations

import pytest

from headrace_operator.loader.config import OperatorConfig, PromptClassesConfig, RoutersConfig
from headrace_operator.loader.loader import Loader
from headrace_operator.loader.source import DemandKey, EngineTarget, RouterCounts, RouterTarget, TargetSample
from headrace_operator.loader.targets import targets
from headrace_operator.snapshot.signals import Factor, SignalStatus
from support.engine_manifests import engine, policy

CONFIG = OperatorConfig(
    routers=(RoutersConfig(frontend="fe-a", urls=("http://r:1", "http://r:2")),),
    prompt_classes=PromptClassesConfig(enabled=True),
)


def test_targets() -> None:
    models = [{"name": "m", "servedName": "org/m", "adapters": ["legal"]}]
    found = targets([engine("a", "http://e:1", models=models), engine("b", state="Disabled")], CONFIG, {}, {})
    assert [(target.url, type(target)) for target in found] == [
        ("http://e:1", EngineTarget),
        ("http://r:1", RouterTarget),
        ("http://r:2", RouterTarget),
    ]
    first = found[0]
    assert isinstance(first, EngineTarget)
    assert first.models == {"org/m", "legal"}


def offered(at: float, count: float) -> list[TargetSample]:
    counts = RouterCounts(offered={DemandKey("inf/chat", "m", "default"): count})
    return [TargetSample(RouterTarget("fe-a", url), at, "Read", counts=counts) for url in ("http://r:1", "http://r:2")]


def test_signals() -> None:
    loader = Loader(CONFIG)
    found = loader.configure([engine("a", "http://e:1"), engine("b")], [policy()], CONFIG)
    read = TargetSample(found[0], 10.0, "Read", {"running": 2.0})
    loader.observe([read, *offered(10.0, 0.0), *offered(20.0, 50.0)])
    signals = loader.signals(20.0, 1_000_020.0)
    assert signals.at == "1970-01-12T13:47:00Z"
    assert [(one.policy, one.frontend, one.requests_per_second.value) for one in signals.demand] == [
        ("inf/chat", "fe-a", 10.0)
    ]
    assert signals.routers == (("fe-a", 2),)
    assert [one.engine for one in signals.engines] == ["inf/a", "inf/b"]
    assert signals.states == (
        SignalStatus(name="engine inf/a", state="Fresh", since="1970-01-12T13:47:00Z", read=True),
        SignalStatus(name="engine inf/b", state="Unknown", since="1970-01-12T13:47:00Z"),
        SignalStatus(name="demand inf/chat fe-a m", state="Fresh", since="1970-01-12T13:47:00Z", read=True),
    )
    assert loader.engine_since("inf/a") == "1970-01-12T13:47:00Z"
    assert loader.engine_since("inf/ghost") == ""


def test_states_keep_the_time_of_their_change() -> None:
    """Case STS-01: what does not change must not be written anew, however the two clocks drift.

    https://github.com/strimzi/strimzi-kafka-operator/issues/13079
    """
    loader = Loader(CONFIG)
    loader.configure([engine("a")], [], CONFIG)
    first = loader.signals(20.0, 1_000_020.0).states
    assert [loader.signals(20.0 + age, 1_000_020.7 + age).states for age in (5, 10)] == [first, first]


def test_mass_loss_is_named() -> None:
    loader = Loader(CONFIG)
    found = loader.configure([engine("a", "http://e:1")], [policy()], CONFIG)
    loader.observe([TargetSample(found[0], float(at), "Refused", problem="refused") for at in range(3)])
    assert (
        SignalStatus(name="mass loss: over half of m seems dead; held", state="Held") in loader.signals(3.0, 3.0).states
    )


def test_the_dead_are_not_stale() -> None:
    loader = Loader(CONFIG)
    found = loader.configure([engine(name, f"http://{name}:1") for name in "ab"], [policy()], CONFIG)
    loader.observe([TargetSample(found[0], float(at), "Refused", problem="refused") for at in range(3)])
    assert [state.name for state in loader.signals(3.0, 3.0).states] == ["engine inf/b"]


def test_restored_penalties() -> None:
    loader = Loader(CONFIG)
    loader.restore({"inf/a": Factor(value=0.4, reason="slow")}, 0.0)
    loader.configure([engine("a")], [], CONFIG)
    penalty = loader.signals(1.0, 1.0).engines[0].penalty
    assert penalty is not None
    assert (penalty.value, penalty.reason) == (0.4, "slow")


def test_staleness_is_that_of_the_most_patient_policy() -> None:
    loader = Loader(CONFIG)
    found = loader.configure(
        [engine("a", "http://e:1")], [policy(), policy("slow", staleness={"hold": "10m", "degrade": "20m"})], CONFIG
    )
    loader.observe([TargetSample(found[0], 0.0, "Read", {"running": 2.0})])
    assert loader.signals(500.0, 500.0).states[0].state == "Fresh"
    loader.configure([engine("a", "http://e:1")], [policy()], CONFIG)
    assert loader.signals(500.0, 500.0).states[0].state == "Unknown"


def classed(at: float, **by_label: float) -> list[TargetSample]:
    """Both routers; so many requests offered under each label of a prompt class, in all."""
    key = {label: DemandKey("inf/chat", "m", "default", label.replace("to", "-")) for label in by_label}
    counts = RouterCounts(
        offered={key[label]: count / 2 for label, count in by_label.items()},
        ended={key[label]: count / 2 for label, count in by_label.items()},
        input_tokens={key[label]: 250 * count for label, count in by_label.items()},
        output_tokens={key[label]: 50 * count for label, count in by_label.items()},
    )
    return [TargetSample(RouterTarget("fe-a", url), at, "Read", counts=counts) for url in ("http://r:1", "http://r:2")]


def test_demand_by_prompt_class_is_one_sum_whatever_the_edges() -> None:
    """The counter of class 1 means something else once the edges have moved; the estimate of the sum goes on."""
    loader = Loader(CONFIG)
    loader.configure([], [policy()], CONFIG)
    loader.restore({}, 0.0, edges=(600, 1500))
    counts: dict[str, float] = {"0": 0.0, "0to600": 0.0, "600to1500": 0.0, "1500to": 0.0}
    rates = []
    for at in range(0, 200, 5):
        loader.observe(classed(float(at), **{label.strip(): count for label, count in counts.items()}))
        found = loader.signals(float(at), 1000.0 + at)
        assert found.class_edges == (600, 1500)
        rates.append([signal.requests_per_second.value for signal in found.demand])
        if at < 100:  # the routers have the old table still
            counts["0"] += 500
        else:
            counts = counts | {"0to600": counts["0to600"] + 400, "1500to": counts["1500to"] + 100}
    known = [parts for parts in rates if parts]
    assert all(sum(parts) == pytest.approx(100.0, rel=1e-6) for parts in known)
    assert known[15] == pytest.approx([100 / 3] * 3)
    assert known[-1] == pytest.approx([80, 0, 20], abs=1.5)
    last = loader.signals(196.0, 1196.0).demand
    assert [signal.prompt_class for signal in last] == [0, 1, 2]


def test_prompt_classes_can_be_switched_off() -> None:
    off = OperatorConfig(routers=CONFIG.routers, prompt_classes=PromptClassesConfig(enabled=False))
    loader = Loader(CONFIG)
    loader.configure([], [policy()], CONFIG)
    loader.restore({}, 0.0, edges=(600, 1500))
    for at in range(4):
        loader.observe(offered(float(at), 50.0 * at))
    assert [signal.prompt_class for signal in loader.signals(4.0, 4.0).demand] == [0, 1, 2]
    loader.configure([], [policy()], off)
    signals = loader.signals(4.0, 4.0)
    assert (signals.class_edges, [signal.prompt_class for signal in signals.demand]) == ((), [None])


def test_the_ratio_of_an_earlier_start_holds_and_is_learned_anew() -> None:
    loader = Loader(CONFIG)
    found = loader.configure([], [policy()], CONFIG)
    loader.restore({}, 5.0, ratios=(("m", 3.3),))
    assert loader.signals(6.0, 6.0).bytes_per_token == (("m", 3.3),)
    counts = RouterCounts(usage_bytes={"m": 100_000.0}, usage_tokens={"m": 20_000.0})
    loader.observe([TargetSample(found[0], 10.0, "Read", counts=counts)])
    assert loader.signals(11.0, 11.0).bytes_per_token == (("m", 5.0),)


def test_an_engine_of_a_source_that_nobody_configured_is_not_read_and_says_so() -> None:
    """Own pages in its place could be refused, and a live engine would count as dead for a typing mistake."""
    loader = Loader(CONFIG)
    typo = engine("a", "http://e:1", metrics={"source": "promm"})
    assert [target.url for target in loader.configure([typo], [policy()], CONFIG)] == ["http://r:1", "http://r:2"]
    signals = loader.signals(10.0, 10.0)
    assert loader.views["inf/a"].misnamed == (
        "spec.metrics.source: 'promm': no such metric source in the operator's configuration; right would be one of"
        " scrape"
    )
    assert [(one.engine, one.alive, one.staleness) for one in signals.engines] == [("inf/a", None, None)]
    assert [one.name for one in signals.states if "source" in one.name] == []
    right = engine("a", "http://e:1", metrics={"source": "scrape"})
    assert loader.configure([right], [policy()], CONFIG)[0].url == "http://e:1"
    loader.signals(11.0, 11.0)
    assert loader.views["inf/a"].misnamed == ""
