"""Medians, ratios of one round and verdicts: an unknown figure is no 0, and a lost round takes no other with it."""

from __future__ import annotations

import math

import pytest

from bench.router.figures import Spread, best_of, ratios, rotated, spread, verdict
from bench.router.text import number


def test_spread_leaves_out_what_is_no_number() -> None:
    assert spread([3.0, math.nan, 1.0, math.inf, 2.0]) == Spread(median=2.0, low=1.0, high=3.0)
    assert spread([math.nan]) is None
    assert spread([]) is None


def test_ratios_are_of_rounds_that_both_have() -> None:
    ours, theirs = {0: 10.0, 1: 20.0, 3: 9.0}, {1: 10.0, 2: 5.0, 3: 0.0}
    assert ratios(ours, theirs) == [2.0]


@pytest.mark.parametrize(("better", "expected"), [("higher", {0: 3.0, 1: 4.0}), ("lower", {0: 2.0, 1: 4.0})])
def test_the_best_peer_may_be_another_in_each_round(better: str, expected: dict[int, float]) -> None:
    assert best_of([{0: 3.0}, {0: 2.0, 1: 4.0}], better) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measured", "better", "expected"),
    [
        (3.0, "higher", "aim"),
        (2.0, "higher", "must"),
        (1.99, "higher", "below"),
        (3.0, "lower", "below"),
        (1.0, "lower", "aim"),
        (None, "lower", "not measured"),
        (math.nan, "higher", "not measured"),
    ],
)
def test_verdict(measured: float | None, better: str, expected: str) -> None:
    must, aim = (2.0, 3.0) if better == "higher" else (2.0, 1.0)
    assert verdict(measured, must, aim, better) == expected  # type: ignore[arg-type]


def test_each_peer_has_each_place_in_turn() -> None:
    orders = [rotated(["a", "b", "c"], turn) for turn in range(4)]
    assert [order[0] for order in orders] == ["a", "b", "c", "a"]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert rotated([], 3) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (45.61, "45.6"),
        (2.345, "2.35"),
        (0.05, "0.05"),
        (0.0043, "0.0043"),
        (-0.0043, "-0.0043"),
        (0, "0.00"),
    ],
)
def test_no_figure_is_shown_as_nothing(value: float, text: str) -> None:
    """LiteLLM's half a percent of Envoy was 0.00."""
    assert number(value) == text
