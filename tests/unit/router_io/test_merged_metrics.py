"""Metrics as values: what a process sends, how processes' become one, and in how many steps."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_router.telemetry.accumulators import Histogram
from headrace_router.telemetry.metrics import LIVE, Gauges, Metrics, live
from headrace_router.telemetry.snapshot import STEP, Merged, Part, lines_of, page

DEMAND = ("ns", "p", "fe", "m", "default", "0")


def sent(metrics: Metrics, *gauges: Gauges) -> list[Part]:
    """The parts as they arrive in another process."""
    encoded = [msgspec.msgpack.encode(part) for part in metrics.parts(lambda: gauges)]
    return [msgspec.msgpack.decode(part, type=Part) for part in encoded]


async def samples(merged: Merged) -> dict[tuple[str, tuple[str, ...]], float]:
    text = (await page(merged.parts())).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def process(number: int) -> Metrics:
    metrics = Metrics()
    metrics.offered[DEMAND].inc(number)
    metrics.ttft[DEMAND].observe(0.03 * number)
    metrics.engine_tbot[("ns/a",)].observe(2.0)
    metrics.queued.set(number)
    return metrics


async def test_counts_add_and_gauges_say_how_they_merge() -> None:
    merged = Merged()
    for number in (1, 2):
        gauges = (
            live("headrace_table_revision", [(DEMAND[:3], 7 + number)]),
            live("headrace_ejected_endpoints", [(("ns/a",), number)]),
            Gauges("memory", "x", (), [((), 5.0 * number)], "process"),
        )
        for part in sent(process(number), *gauges):
            merged.add(part, str(number))
    found = await samples(merged)
    assert found["headrace_offered_requests_total", DEMAND] == 3
    assert found["headrace_engine_time_between_output_tokens_seconds_count", ("ns/a",)] == 2
    assert found["headrace_engine_time_between_output_tokens_seconds_sum", ("ns/a",)] == 4
    buckets = {
        key[1][-1]: value for key, value in found.items() if key[0] == "headrace_time_to_first_token_seconds_bucket"
    }
    assert (buckets["0.025"], buckets["0.05"], buckets["0.1"], buckets["+Inf"]) == (0, 1, 2, 2)
    assert found["headrace_time_to_first_token_seconds_sum", DEMAND] == pytest.approx(0.09)
    assert found["headrace_queued_requests", ()] == 3
    assert found["headrace_table_revision", DEMAND[:3]] == 8
    assert found["headrace_ejected_endpoints", ("ns/a",)] == 2
    assert (found["memory", ("1",)], found["memory", ("2",)]) == (5, 10)


async def test_of_a_process_that_ended_what_was_counted_still_holds() -> None:
    """A counter of the page never falls because a process was replaced; what it had in flight is no more."""
    merged = Merged()
    for part in sent(process(1), live("headrace_in_flight_requests", [(("ns/a",), 4.0)])):
        merged.add(part, "1", ended=True)
    for part in sent(process(2), live("headrace_in_flight_requests", [(("ns/a",), 3.0)])):
        merged.add(part, "2")
    found = await samples(merged)
    assert found["headrace_offered_requests_total", DEMAND] == 3
    assert found["headrace_in_flight_requests", ("ns/a",)] == 3
    assert found["headrace_queued_requests", ()] == 2


async def test_one_process_merged_is_its_own_page() -> None:
    metrics = process(3)
    gauges = live("headrace_in_flight_requests", [(('n"\\\ns/a',), 4.0)])
    merged = Merged()
    for part in sent(metrics, gauges):
        merged.add(part, "1")
    assert await page(merged.parts()) == await metrics.page(lambda: [gauges])


def test_processes_that_disagree_are_not_mixed() -> None:
    merged = Merged()
    part = Part("a_total", "counter", "x", ("engine",), "sum", (), [(("e",), (1.0,))])
    merged.add(part, "1")
    with pytest.raises(ValueError, match="process 2 describes a_total otherwise"):
        merged.add(msgspec.structs.replace(part, labels=("model",)), "2")
    assert [row for part in merged.parts() for row in part.rows] == [(("e",), (1.0,))]


async def test_a_page_of_a_thousand_engines_is_made_in_small_steps() -> None:
    """router.md, Speed: the page is rendered in steps of at most 2 ms. STEP lines take under 0.3 ms; that a thousand
    engines' live gauges are read as they are rendered shows in the order of things."""
    metrics = Metrics()
    for number in range(1000):
        metrics.requests[("ns", "p", "fe", "m", f"ns/e{number}", "ok")].inc()
        metrics.engine_ttft[(f"ns/e{number}",)].observe(1.0)
    for number in range(30):
        metrics.duration[(*DEMAND[:3], f"m{number}", "default", "0", "unary")].observe(1.0)
    turns, read = 0, []

    def rows() -> list[Gauges]:
        def one(number: int) -> tuple[tuple[str], float]:
            read.append(turns)
            return ((f"ns/e{number}",), 1.0)

        return [live("headrace_in_flight_requests", (one(number) for number in range(1000)))]

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    parts = list(metrics.parts(list))
    assert all(sum(lines_of(part.kind, part.bounds) for _ in part.rows) <= STEP for part in parts)
    counting = asyncio.create_task(count())
    made = await metrics.page(rows)
    counting.cancel()
    lines = made.count(b"\n")
    assert turns >= lines / STEP
    assert len(set(read)) >= 1000 / STEP


def test_every_live_gauge_says_how_it_merges() -> None:
    assert {family.merge for family in LIVE.values()} <= {"sum", "max", "min", "process"}


@pytest.mark.parametrize("value", [0.0, 0.025, 0.0250001, 59.9, 60.0, 1e9])
def test_histograms_count_a_value_on_a_bound_below_it(value: float) -> None:
    bounds = (0.025, 60.0)
    histogram = Histogram(bounds)
    histogram.observe(value)
    assert histogram.read() == (int(value <= 0.025), int(0.025 < value <= 60), int(value > 60), value)
