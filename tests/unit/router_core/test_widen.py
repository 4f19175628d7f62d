"""Weights of a table whose operator has been silent for long."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace_router.core.table_check import parse_table
from headrace_router.core.widen import drift, widened
from support.router_core import GUARD, encoded, engine, make_table, raw_table

SHARES = {"a": 0.2, "b": 0.8}


def table(weights: dict[str, int] | None = None, shares: dict[str, float] = SHARES, **fields: object):  # type: ignore[no-untyped-def]
    weights = weights if weights is not None else {"a": 10_000, "b": 0}
    engines = [engine(name, capacityShare=share) for name, share in shares.items()]
    return make_table(weights, engines=engines, **fields)


@pytest.mark.parametrize(
    ("after", "silence", "part"),
    [
        pytest.param(None, 1e6, 0.0, id="not asked for: the last weights for ever"),
        pytest.param(600.0, None, 0.0, id="the operator's life is unknown"),
        pytest.param(600.0, 599.0, 0.0, id="not yet"),
        pytest.param(600.0, 600.0, 0.0, id="begins"),
        pytest.param(600.0, 750.0, 0.5, id="half of five minutes"),
        pytest.param(600.0, 900.0, 1.0, id="done"),
        pytest.param(600.0, 1e9, 1.0, id="stays"),
        pytest.param(0.0, 50.0, 0.0, id="never before the heartbeat is stale"),
        pytest.param(0.0, 75.0, 0.05, id="at once when it is"),
    ],
)
def test_how_far_it_has_drifted(after: float | None, silence: float | None, part: float) -> None:
    """api.md, Routing table, Life: phased in over 5 minutes; a heartbeat is stale after 60 s."""
    assert drift(table(widenAfter=after), silence) == part


def weights(found) -> dict[str, int]:  # type: ignore[no-untyped-def]
    return {route.engine.removeprefix("ns/"): route.weight for route in found.models[0].classes[0].routes}


def test_weights_go_to_capacity_step_by_step_and_prices_go() -> None:
    given = table(guard=GUARD)
    assert widened(given, 0.0) is given
    assert weights(widened(given, 0.5)) == {"a": 6000, "b": 4000}
    assert weights(widened(given, 1.0)) == {"a": 2000, "b": 8000}
    assert widened(given, 0.5).guard is None


def test_without_a_known_capacity_weights_stay() -> None:
    assert weights(widened(table(shares={"a": 0.0, "b": 0.0}), 1.0)) == {"a": 10_000, "b": 0}


@example([(1, 5e-324)], 0.5)
@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=12),
    st.floats(0.01, 1.0),
)
def test_what_comes_out_is_a_table(parts: list[tuple[int, float]], part: float) -> None:
    total = sum(weight for weight, _ in parts)
    names = [f"e{index}" for index in range(len(parts))]
    whole = [weight * 10_000 // total for weight, _ in parts]
    whole[0] += 10_000 - sum(whole)
    shares = {name: share for name, (_, share) in zip(names, parts, strict=True)}
    raw = raw_table(
        dict(zip(names, whole, strict=True)), engines=[engine(name, capacityShare=shares[name]) for name in names]
    )
    before = parse_table(encoded(raw))
    after = widened(before, part)  # type: ignore[arg-type]
    assert sum(weights(after).values()) == 10_000
    assert min(weights(after).values()) >= 0
