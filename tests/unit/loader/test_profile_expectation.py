"""What a profile lets expect of an engine at its own load, and how far from it the measured is."""

from __future__ import annotations

import pytest

from headrace_operator.estimators.replica import EngineFigures
from headrace_operator.loader.expectation import at_utilization, measured, reference_rate, utilization
from support.engine_manifests import engine

FIGURES = EngineFigures(
    at=5.0,
    ttft=0.3,
    ttft_count=50.0,
    tbot=0.03,
    tbot_count=900.0,
    request_rate=40.0,
    prompt_rate=20_000.0,
    generation_rate=3_000.0,
    hit_share=0.5,
)
CURVE = {
    "reference": {"inputTokens": 100, "outputTokens": 50},
    "ttft": [{"utilizationPercent": 0, "latency": "100ms"}, {"utilizationPercent": 100, "latency": "300ms"}],
    "tbot": [{"utilizationPercent": 0, "latency": "10ms"}, {"utilizationPercent": 100, "latency": "30ms"}],
}


def test_measured_against_its_profile_at_its_own_load() -> None:
    spec = engine("a", profile=CURVE).spec
    found = measured(spec, 1.0, FIGURES)
    assert found.utilization == pytest.approx(0.4)
    assert found.ttft_ratio == pytest.approx(0.3 / 0.18)
    assert found.tbot_ratio == pytest.approx(0.03 / 0.018)


@pytest.mark.parametrize("slow", [1.0, 3.0])
@pytest.mark.parametrize("running", [5.0, 40.0, 100.0])
def test_tbot_is_judged_at_the_measured_concurrency(slow: float, running: float) -> None:
    """The optimizer's page, Estimators: a slow engine runs more at once; by its load it looks slower yet."""
    spec = engine("a", profile=CURVE).spec
    # The profile as concurrency: 100 requests/s x 50 tokens; 10 ms at 0, 30 ms at 150 running.
    step = 0.010 + (0.030 - 0.010) * running / 150
    figures = EngineFigures(at=1.0, mean_running=2 * running, request_rate=4.0, tbot=slow * step, tbot_count=500.0)
    assert measured(spec, 2.0, figures).tbot_ratio == pytest.approx(slow)


def test_prefill_lengthens_steps_too() -> None:
    """A batch of long prompts at high throughput is no slow engine although few requests run."""
    spec = engine("a", profile=CURVE).spec
    figures = EngineFigures(at=1.0, mean_running=5.0, request_rate=90.0, tbot=0.028, tbot_count=500.0)
    assert measured(spec, 1.0, figures).tbot_ratio == pytest.approx(1.0)


def test_beyond_the_profile_it_is_flat() -> None:
    spec = engine("a", profile=CURVE).spec
    figures = EngineFigures(at=1.0, mean_running=900.0, request_rate=20.0, tbot=0.06, tbot_count=500.0)
    assert measured(spec, 1.0, figures).tbot_ratio == pytest.approx(2.0)


def test_longer_prompts_are_expected_to_take_longer() -> None:
    rates = {"prefillTokensPerSecond": 40_000, "decodeTokensPerSecond": 6_000}
    spec = engine("a", profile=CURVE, capacity={"perReplica": rates}).spec
    assert utilization(spec.capacity.per_replica, 1.0, FIGURES) == pytest.approx(0.75)
    expected = 0.25 + (250 - 100) / 40_000
    assert measured(spec, 1.0, FIGURES).ttft_ratio == pytest.approx(0.3 / expected)
    assert reference_rate(spec) == pytest.approx(1 / (100 / 40_000 + 50 / 6_000))


@pytest.mark.parametrize(("load", "latency"), [(-1.0, 0.1), (0.0, 0.1), (0.5, 0.2), (1.0, 0.3), (7.0, 0.3)])
def test_curve(load: float, latency: float) -> None:
    assert at_utilization(engine("a", profile=CURVE).spec.profile.ttft, load) == pytest.approx(latency)


def test_nothing_to_expect() -> None:
    spec = engine("a", profile={}, capacity={"perReplica": {"maxConcurrency": 8}}).spec
    assert at_utilization((), 0.5) is None
    assert utilization(spec.capacity.per_replica, 1.0, FIGURES) is None
    assert utilization(spec.capacity.per_replica, 0.0, FIGURES) is None
    assert measured(spec, 1.0, EngineFigures()).tbot_ratio is None
    assert reference_rate(spec) == 1.0
