"""Numbers as people read them."""

from __future__ import annotations

import pytest

from headrace_operator.decision.why.text import fitted, latency, listed, percent, plain, plural, rate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01, "0.01"),
        (7.5, "7.5"),
        (99.96, "100"),
        (120.4, "120"),
        (12400, "12,400"),
        (3.80721, "3.81"),
    ],
)
def test_plain(value: float, text: str) -> None:
    assert plain(value) == text
    assert rate(value) == f"{text} requests/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.00004, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.0073, "7.3 ms"),
        (0.009951, "10 ms"),
        (0.041, "41 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (1.34, "1.3 s"),
        (12.2, "12 s"),
        (4321.0, "4,321 s"),
    ],
)
def test_latency(seconds: float, text: str) -> None:
    assert latency(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0001, "<0.1 %"),
        (0.004, "0.4 %"),
        (0.02, "2 %"),
        (0.0204, "2 %"),
        (0.17, "17 %"),
        (0.9949, "99 %"),
        (0.9975, "99.8 %"),
        (0.99996, "99.9 %"),
        (1, "100 %"),
        (1.3, "130 %"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_lists() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert [plural(count, "engine") for count in (1, 2, 1200)] == ["1 engine", "2 engines", "1,200 engines"]


def test_fitted() -> None:
    assert fitted(["aaa", "bbb"], 8) == "aaa, bbb"
    assert fitted(["aaaaaa", "bbbbbb", "cccccc"], 19) == "aaaaaa and 2 others"
    assert fitted(["aaaaaa", "bbbbbb", "cccccc"], 18) == "aaaa… and 2 others"
    assert fitted(["aaaaaa", "bbbbbb"], 5) == "aaaa…"
    assert fitted(["aaaaaa"], 5) == "aaaa…"
    assert fitted([], 9) == ""
