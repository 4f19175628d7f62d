"""The priced guard's arithmetic, worked by hand, and the bound for tables without prices."""

from __future__ import annotations

import pytest

from headrace_api.table import Guard
from headrace_router.core.guard import Price, Variant, keyed_variant, keyless_variant, load_bound

KEYED = Variant(1.0, 1.0, 0.0)
FOLLOWING = Variant(0.0, 0.0, 1.0)


def price(
    rho: float = 0.0, here: float = 16.0, everywhere: float = 20.0, share: float = 0.01, routers: int = 1
) -> Price:
    return Price(rho, here, everywhere, share, routers)


def test_at_the_expected_load_only_the_reduced_cost_counts() -> None:
    assert price(rho=0.25).cost(16, KEYED) == 0.25
    assert price(rho=0.25).cost(16, FOLLOWING) == 0.25


def test_within_tolerance_nothing_is_added() -> None:
    assert price().cost(20, KEYED) == 0.0  # m 16, sqrt(m) 4


def test_beyond_tolerance_the_excess_is_priced() -> None:
    """n = 30, m = 16, z = 1: delta 10; 2 x 0.01 x 20 x 10 / (16 + max(4, 4)) = 0.2 s."""
    assert price().cost(30, KEYED) == pytest.approx(0.2)
    assert price(rho=0.3).cost(30, KEYED) == pytest.approx(0.5)


def test_below_the_expected_load_credit_is_given_only_with_nu() -> None:
    """n = 4, m = 16: delta -12; 2 x 0.01 x 20 x -12 / 20 = -0.24 s."""
    assert price().cost(4, FOLLOWING) == pytest.approx(-0.24)
    assert price().cost(4, KEYED) == 0.0


def test_several_routers_share_what_is_expected() -> None:
    """R = 4: m = 4, k/R = 1; n = 11: delta 7 - 2 = 5; 2 x 0.01 x 20 x 5 / 5 = 0.4 s."""
    assert price(routers=4).cost(11, KEYED) == pytest.approx(0.4)


def test_the_softening_grows_with_large_engines() -> None:
    """N* = 100: k = 20; m = 64, n = 82: delta 10; 2 x 0.001 x 100 x 10 / 84."""
    assert price(here=64.0, everywhere=100.0, share=0.001).cost(82, KEYED) == pytest.approx(2 / 84)


def test_an_engine_that_the_solution_leaves_idle_still_has_a_price() -> None:
    """N* = 0, n = 10: weight min(10, 4); 2 x 0.01 x 4 x 10 / (0 + 4) = 0.2 s, and rising."""
    idle = price(here=0.0, everywhere=0.0)
    assert idle.cost(0, KEYED) == 0.0
    assert idle.cost(10, KEYED) == pytest.approx(0.2)
    assert idle.cost(1, KEYED) < idle.cost(2, KEYED) < idle.cost(20, KEYED)


def test_the_price_of_small_engines_begins_at_their_own_in_flight() -> None:
    """N* = 2 counts as it is at n = 2 and as k = 4 from n = 4 on."""
    small = price(here=2.0, everywhere=2.0)
    assert small.cost(3, Variant(0, 0, 0)) == pytest.approx(2 * 0.01 * 3 * 1 / 6)
    assert small.cost(8, Variant(0, 0, 0)) == pytest.approx(2 * 0.01 * 4 * 6 / 6)


@pytest.mark.parametrize(
    ("expected", "routers", "variant"),
    [(39.9, 1, (0, 1, 0)), (40.0, 1, (0, 0, 1)), (1000.0, 2, (1, 1, 0)), (1.0, 3, (1, 1, 0))],
)
def test_keyless_variants(expected: float, routers: int, variant: tuple[float, float, float]) -> None:
    found = keyless_variant(expected, routers)
    assert (found.x, found.z, found.nu) == variant


def test_keyed_traffic_follows_the_table() -> None:
    found = keyed_variant(Guard(x=0.5, z=2.0, nu=0.0))
    assert (found.x, found.z, found.nu) == (0.5, 2.0, 0.0)


def test_load_bound() -> None:
    """share 1/4, 15 in flight: m = 4; 1.25 x 4 + 2 x 2 = 9; the floor holds below."""
    assert load_bound(0.25, 15, 1.0) == pytest.approx(9.0)
    assert load_bound(1 / 200, 0, 1.0) == 1.0
    assert load_bound(1 / 200, 0, 16.0) == 16.0
