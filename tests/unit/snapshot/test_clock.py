"""RFC 3339 without a clock: the standard library decides."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.snapshot.clock import epoch_seconds, rfc3339

EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@given(st.integers(int(EARLIEST.timestamp()), int(LATEST.timestamp())))
def test_both_ways(at: int) -> None:
    text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    assert rfc3339(at) == text
    assert epoch_seconds(text) == at


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        pytest.param("2026-11-29T13:30:00+01:30", "2026-11-29T12:00:00Z", id="offset east"),
        pytest.param("2026-11-29T04:00:00-08:00", "2026-11-29T12:00:00Z", id="offset west"),
        pytest.param(" 2026-11-29t12:00:00z ", "2026-11-29T12:00:00Z", id="lower case and blanks"),
        pytest.param("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", id="leap day"),
        pytest.param("2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z", id="leap day of a 400th year"),
    ],
)
def test_same_instant(text: str, same_as: str) -> None:
    at = epoch_seconds(text)
    assert at is not None
    assert rfc3339(at) == same_as


def test_fractions_of_a_second() -> None:
    whole = epoch_seconds("2026-11-29T12:00:00Z")
    assert whole is not None
    assert epoch_seconds("2026-11-29T12:00:00.25Z") == whole + 0.25
    assert rfc3339(whole + 0.99) == "2026-11-29T12:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-11-29",
        "2026-11-29T12:00:00",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:61Z",
    ],
)
def test_no_instant(text: str) -> None:
    assert epoch_seconds(text) is None
