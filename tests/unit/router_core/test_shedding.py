"""The shed draw: shared by routers, nested, fixed for ten minutes, independent of slots."""

from __future__ import annotations

import pytest

from headrace_router.core.shedding import shed_draw
from headrace_router.core.slots import SLOTS, slot_of

KEYS = [b"user-%d" % number for number in range(2000)]
NOW = 1_800_000_000.0


def never() -> float:
    raise AssertionError("a keyed draw takes no chance")


def shed(share: float, now: float = NOW, priority: str = "batch") -> set[bytes]:
    return {key for key in KEYS if shed_draw(key, priority, now, never) < share}


def test_shares_are_met_and_nested() -> None:
    small, large = shed(0.1), shed(0.3)
    assert small < large
    assert len(small) / len(KEYS) == pytest.approx(0.1, abs=0.02)
    assert len(large) / len(KEYS) == pytest.approx(0.3, abs=0.03)
    assert shed(0.0) == set()
    assert shed(1.0) == set(KEYS)


def test_a_conversation_keeps_its_lot_for_ten_minutes_and_no_longer() -> None:
    assert shed(0.3, NOW) == shed(0.3, NOW + 599.0)
    both = shed(0.3, NOW) & shed(0.3, NOW + 600.0)
    assert len(both) / len(KEYS) == pytest.approx(0.09, abs=0.03)


def test_priorities_draw_for_themselves() -> None:
    assert shed(0.3) != shed(0.3, priority="interactive")


def test_shedding_hits_all_slots_alike() -> None:
    lower = sum(slot_of(key) < SLOTS // 2 for key in shed(0.5)) / len(shed(0.5))
    assert lower == pytest.approx(0.5, abs=0.06)


def test_without_a_key_chance_draws() -> None:
    assert shed_draw(None, "batch", NOW, lambda: 0.25) == 0.25
