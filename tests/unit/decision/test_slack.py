"""The retry budget's share follows the room on the engines, coarsely, and with it the table."""

from __future__ import annotations

import pytest

from headrace_operator.decision.tables.slack import held_slack
from support.operator_ticks import Ticks, offered, one
from support.world import engine


@pytest.mark.parametrize(
    ("before", "now", "published"),
    [
        pytest.param(None, 0.6, 0.6, id="first"),
        pytest.param(None, None, 0.0, id="nothing known, none before: no room is promised"),
        pytest.param(0.6, None, 0.6, id="nothing known: what stands holds"),
        pytest.param(0.6, 0.45, 0.6, id="a waver holds"),
        pytest.param(0.6, 0.4, 0.4, id="moved down"),
        pytest.param(0.6, 0.8, 0.8, id="moved up"),
        pytest.param(0.1, 0.0, 0.0, id="nothing left is said at once"),
        pytest.param(0.0, 0.15, 0.0, id="and holds until there is room again"),
    ],
)
def test_what_is_published_holds_until_it_moved(before: float | None, now: float | None, published: float) -> None:
    assert held_slack(before, now) == published


@pytest.mark.parametrize(
    ("rate", "percent"),
    [pytest.param(0.5, 20.0, id="idle"), pytest.param(5, 10.5, id="half"), pytest.param(30, 1.0, id="full")],
)
def test_the_share_lies_between_idle_and_saturated(rate: float, percent: float) -> None:
    """protection.md, Retries: the share by slack = 1 - load / (target x C), idle 20 %, saturated 1 %."""
    ticks = Ticks()
    decision = ticks.tick([engine("a", 10)], [one()], offered(rate))
    [table] = decision.tables
    assert table.retry.percent == pytest.approx(percent, abs=1.0)
