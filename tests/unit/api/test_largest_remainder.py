"""Fractions to integers: nothing lost, nothing invented.

Case WEI-01 (https://github.com/openservicemesh/osm/issues/4092, https://github.com/hashicorp/consul/pull/16531,
https://github.com/traefik/traefik/issues/9436): weights that round to 0 or do not add up.
"""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_api.largest_remainder import largest_remainder


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([1.0] * 120, [84] * 40 + [83] * 80, id="a: 120 equal engines"),
        pytest.param([1.0, 2.0], [3333, 6667], id="b: one and two"),
        pytest.param([0.33, 0.33, 0.33], [3334, 3333, 3333], id="c: thirds at two decimals"),
        pytest.param([0.0004, 0.9996], [4, 9996], id="d: a small one"),
        pytest.param([0.8 / 9] * 9 + [0.2 / 2] * 2, [889] * 8 + [888] + [1000] * 2, id="e: 80/20 over 9 and 2"),
        pytest.param([0.17] * 6, [1667] * 4 + [1666] * 2, id="sums to 1.02"),
        pytest.param([0.0, 5.0], [0, 10_000], id="zero stays zero"),
        pytest.param([nan, 1.0, inf, -3.0], [0, 10_000, 0, 0], id="what is no share is nothing"),
        pytest.param([1e308, 1e308], [5000, 5000], id="no overflow"),
        pytest.param([5e-324], [10_000], id="no underflow"),
        pytest.param([0.0, 0.0], [0, 0], id="nothing"),
        pytest.param([], [], id="nobody"),
    ],
)
def test_shares(shares: list[float], expected: list[int]) -> None:
    """Case WEI-01."""
    assert largest_remainder(shares, 10_000) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(1, 20_000))
def test_sum_and_closeness(shares: list[float], total: int) -> None:
    counts = largest_remainder(shares, total)
    whole = sum(shares)
    if max(shares) <= 0:
        assert counts == [0] * len(shares)
        return
    assert sum(counts) == total
    assert all(abs(count - share / whole * total) < 1 + 1e-6 for count, share in zip(counts, shares, strict=True))
    assert all(count == 0 for count, share in zip(counts, shares, strict=True) if share == 0)
