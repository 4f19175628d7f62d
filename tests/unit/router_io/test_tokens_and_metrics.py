"""Learned ratios, the metrics page and the heartbeat."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_router.tables.heartbeat import Heartbeat
from headrace_router.telemetry.metrics import Gauges, Metrics
from headrace_router.telemetry.tokens import GAIN, Learned, Mean


def test_a_mean_starts_plain_and_then_follows() -> None:
    mean = Mean()
    assert mean.count == 0
    for sample in (1.0, 3.0):
        mean.add(sample)
    assert mean.value == 2.0
    for _ in range(1000):
        mean.add(10.0)
    assert mean.value == pytest.approx(10.0, abs=10 * (1 - GAIN) ** 900)


def test_nothing_unknown_counts_as_zero() -> None:
    learned = Learned()
    assert learned.unanswered() is None
    assert learned.input_of(800, 4.0) == 200
    assert learned.input_of(800, 0.0) == 200
    learned.answered(1000, 10, input_tokens=100, output_tokens=20)
    assert (learned.unanswered(), learned.input_of(800, 4.0), learned.output_of(3)) == (20, 80, 6)
    learned.answered(1000, 5, input_tokens=None, output_tokens=None)
    assert learned.unanswered() == 15


async def test_the_page_is_prometheus_text_and_made_in_steps() -> None:
    """router.md, Speed: a page of many series is rendered in steps, so that streams go on."""
    metrics = Metrics()
    for number in range(300):
        metrics.requests[("ns", "p", "fe", "m", f'e"{number}\n', "ok")].inc(number)
    metrics.ttft[("ns", "p", "fe", "m", "default", "0")].observe(0.3)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    page = await metrics.page(lambda: [Gauges("headrace_in_flight_requests", "x", ("engine",), [(("a",), 2.0)])])
    counting.cancel()
    assert turns >= 5
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    values = {sample.labels["engine"]: sample.value for sample in families["headrace_requests"].samples}
    assert values['e"7\n'] == 7
    assert len(values) == 300
    assert families["headrace_in_flight_requests"].samples[0].value == 2
    ttft = families["headrace_time_to_first_token_seconds"]
    assert ttft.type == "histogram"
    assert not any(sample.name.endswith("_created") for family in families.values() for sample in family.samples)
    assert {sample.labels.get("policy_namespace") for sample in ttft.samples} == {"ns"}


async def test_histograms_are_made_in_steps_too() -> None:
    """router.md, Speed: steps of at most 2 ms; fifty children of a histogram are 850 lines and took 3 ms."""
    metrics = Metrics()
    for number in range(50):
        metrics.ttft[("ns", "p", "fe", f"m{number}", "default", "0")].observe(0.3)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    page = await metrics.page(list)
    counting.cancel()
    assert turns >= page.count(b"\n") // 100


def test_the_heartbeat_is_found_above_the_tables(tmp_path: Path) -> None:
    table = tmp_path / "state" / "inference" / "t.yaml"
    table.parent.mkdir(parents=True)
    heartbeat = Heartbeat([table])
    assert heartbeat.age() is None
    file = tmp_path / "state" / "heartbeat"
    file.write_text("x")
    os.utime(file, (time.time() - 100, time.time() - 100))
    age = heartbeat.age()
    assert age is not None
    assert age >= 100
    os.utime(file, (time.time() + 100, time.time() + 100))
    assert heartbeat.age() == 0
