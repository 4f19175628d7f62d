"""Durations and quantities: what they mean, what is refused and in which words."""

from __future__ import annotations

import math

import pytest

from headrace_api.units import MAX_WHOLE, number, seconds


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0s", 0.0),
        ("200ms", 0.2),
        ("2s", 2.0),
        ("1.5s", 1.5),
        ("1m30s", 90.0),
        ("1h", 3600.0),
        ("1h1m1s1ms", 3661.001),
    ],
)
def test_seconds(text: str, meant: float) -> None:
    assert math.isclose(seconds(text), meant)


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-1s", "1d", "1 s", "1s ", "1s\n", "1e3s", "inf", "NaNs", ".5s", "9" * 400 + "s", "1s1s1s1s1s"],
)
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; right would be 200ms, 2s or 1m30s"):
        seconds(text)


@pytest.mark.parametrize(
    ("quantity", "meant"),
    [
        (0, 0.0),
        (12, 12.0),
        ("12", 12.0),
        (MAX_WHOLE, 999_999_999_999.0),
        ("1.5", 1.5),
        ("500m", 0.5),
        ("2k", 2e3),
        ("4Mi", 4 * 2.0**20),
        ("1Gi", 2.0**30),
        ("1T", 1e12),
    ],
)
def test_number(quantity: int | str, meant: float) -> None:
    assert math.isclose(number(quantity), meant)


@pytest.mark.parametrize(
    "quantity",
    ["", "ten", "-1", -1, "1e400", "inf", "nan", "1 Mi", "12\n", "0x10", "1.2345", True, "9" * 13, None, 1.5],
)
def test_not_a_quantity(quantity: int | str) -> None:
    with pytest.raises(ValueError, match="is not a quantity; right would be 12, 500m or 32Mi"):
        number(quantity)
