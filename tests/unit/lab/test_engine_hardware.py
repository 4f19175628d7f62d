"""Fitted costs, derived curves and what is declared: all follow from the rows that lie beside them."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from headrace_api.engine import Capacity, Hardware, Profile
from headrace_api.units import seconds
from headrace_lab.engine.fit import QUEUED_TTFT_MS, committed_rows, fit_all
from headrace_lab.engine.hardware import HARDWARE, LONG_PROMPTS, REFERENCE, ReferenceMix, declared, profile
from headrace_lab.engine.virtual import UTILIZATION_PERCENT, derive_point, emergent, open_loop

KINDS = ("B200x2", "B200x4", "H100x2", "H100x4", "H200x2", "H200x4")
ROWS = {(row.name, row.isl, row.osl, row.concurrency): row for row in committed_rows()}


def test_the_fit_follows_from_the_rows() -> None:
    assert tuple(HARDWARE) == KINDS
    assert len(ROWS) == 90
    found = fit_all(committed_rows())
    assert found.keys() == HARDWARE.keys()
    for name, hardware in found.items():
        fields, committed = (msgspec.to_builtins(kind) for kind in (hardware, HARDWARE[name]))
        assert fields.pop("accelerator") == committed.pop("accelerator")
        assert fields.pop("fit") == pytest.approx(committed.pop("fit"), abs=1e-3)
        assert fields == pytest.approx(committed, rel=2e-3, abs=1e-7)


def test_the_fit_explains_the_measured_token_times() -> None:
    for hardware in HARDWARE.values():
        assert hardware.fit.r2 >= 0.99
        assert hardware.fit.median_error <= 0.04
        assert hardware.fit.max_error <= 0.11


@pytest.mark.parametrize(
    "point",
    [("H100x4", 1024, 1024, 4), ("H200x2", 1024, 1024, 16), ("B200x4", 8192, 1024, 8), ("B200x2", 8192, 1024, 16)],
    ids=str,
)
def test_measured_latencies_emerge(point: tuple[str, int, int, int]) -> None:
    row = ROWS[point]
    means = emergent(row)
    assert means.tbot * 1e3 == pytest.approx(row.tpot_ms, rel=0.05)
    assert means.ttft * 1e3 == pytest.approx(row.ttft_ms, rel=0.25)


def test_a_full_cache_emerges() -> None:
    """64 clients of 8,192 tokens on H100x2: a minute in the queue was measured, and nothing in the core knows of it."""
    row = ROWS["H100x2", 8192, 1024, 64]
    assert row.ttft_ms > QUEUED_TTFT_MS
    means = emergent(row)
    assert means.ttft * 1e3 == pytest.approx(row.ttft_ms, rel=0.1)
    assert means.tbot * 1e3 == pytest.approx(row.tpot_ms, rel=0.1)


@pytest.mark.parametrize("mix", [REFERENCE, LONG_PROMPTS], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_curves_rise_and_cover_all_utilisations(name: str, mix: ReferenceMix) -> None:
    points = profile(name, mix)
    assert tuple(point.utilization_percent for point in points) == UTILIZATION_PERCENT
    for before, after in pairwise(points):
        assert 0 < before.ttft_ms <= after.ttft_ms
        assert 0 < before.tbot_ms <= after.tbot_ms


@pytest.mark.parametrize("name", KINDS)
def test_an_unloaded_engine_is_the_arithmetic_of_its_steps(name: str) -> None:
    hardware = HARDWARE[name]
    point = profile(name)[0]
    # One step holds the whole prompt of 1,024 tokens.
    by_hand = hardware.base_ms + hardware.per_sequence_ms + 1024 * hardware.per_prompt_token_ms
    assert point.ttft_ms == pytest.approx(by_hand, abs=2e-3)
    # The mean context while 127 tokens are made: 1,024 to 1,150.
    assert point.tbot_ms == pytest.approx(
        hardware.base_ms + hardware.per_sequence_ms + 1087 * hardware.per_context_token_ms, abs=2e-3
    )


@pytest.mark.parametrize(("name", "mix", "percent"), [("B200x4", REFERENCE, 20), ("H100x2", LONG_PROMPTS, 20)], ids=str)
def test_a_few_points_are_derived_again(name: str, mix: ReferenceMix, percent: int) -> None:
    committed = next(point for point in profile(name, mix) if point.utilization_percent == percent)
    again = derive_point(HARDWARE[name], mix, percent)
    assert again.ttft_ms == pytest.approx(committed.ttft_ms, rel=1e-3)
    assert again.tbot_ms == pytest.approx(committed.tbot_ms, rel=1e-3)


def test_capacity_is_where_the_queue_begins_to_grow() -> None:
    hardware = HARDWARE["H100x2"]
    capacity = 1 / hardware.work(REFERENCE)
    short, long = (open_loop(hardware.config(), REFERENCE, 1.15 * capacity, 1, window) for window in (60.0, 180.0))
    assert long.ttft > 1.5 * short.ttft
    assert open_loop(hardware.config(), REFERENCE, 0.85 * capacity, 1, 60.0).ttft < 0.4


def test_declared_blocks_are_valid_and_scale_with_speed() -> None:
    for name in KINDS:
        blocks = declared(name)
        msgspec.convert(blocks["capacity"], Capacity)
        msgspec.convert(blocks["hardware"], Hardware)
        whole = msgspec.convert(blocks["profile"], Profile)
        assert whole.reference is not None
        assert (whole.reference.input_tokens, whole.reference.output_tokens) == (1024, 128)
        twice = declared(name, speed=2.0)
        rates = [b["capacity"]["perReplica"]["decodeTokensPerSecond"] for b in (blocks, twice)]
        assert rates[1] == pytest.approx(2 * rates[0], abs=2)
        last = [seconds(b["profile"]["ttft"][-1]["latency"]) for b in (blocks, twice)]
        assert last[1] == pytest.approx(last[0] / 2, abs=1e-3)
    assert declared("H100x2", mix=LONG_PROMPTS)["profile"]["reference"] == {"inputTokens": 2048, "outputTokens": 64}


def test_unknown_hardware_mixes_and_speeds_are_faults() -> None:
    with pytest.raises(KeyError):
        declared("TPU")
    with pytest.raises(KeyError):
        declared("H100x2", mix=ReferenceMix(1, 1))
    for speed in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="speed"):
            HARDWARE["H100x2"].cost(speed)
