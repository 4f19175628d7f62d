"""A profile that is wrong for most engines is the administrator's to mend: a condition and an Event, no weights."""

from __future__ import annotations

from headrace_operator.snapshot.signals import ProfileDrift, Signals
from support.operator_ticks import Ticks, one, quiet, reasons, three


def drifting(model: str, factor: float = 0.8) -> Signals:
    return Signals(drifts=(ProfileDrift(model=model, factor=factor),))


def test_a_condition_while_it_lasts() -> None:
    """The protection page, Penalties: off by more than 15 % the same way: no trim but a condition ProfileDrift."""
    ticks = Ticks()
    ticks.tick(three(), [one()])
    decision = ticks.tick(three(), [one()], drifting("m"))
    assert decision.tables == ()
    assert reasons(decision) == [("RoutingPolicy", "ns/p", "ProfileDrift")]
    assert decision.events[0].message == (
        "m: tokens take 1.2 times what the profiles say (median engine); no engine is trimmed, measure them anew"
    )
    assert ticks.condition("ProfileDrift") == ("True", "ProfileDrift")
    assert ticks.condition("Ready") == ("True", "Published")
    assert quiet(ticks.tick(three(), [one()], drifting("m", 0.75)))
    ended = ticks.tick(three(), [one()])
    assert ended.events == ()
    assert "ProfileDrift" not in {condition.type for condition in ticks.statuses["ns/p"].conditions}


def test_other_models_and_nonsense_are_nobodys() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    assert quiet(ticks.tick(three(), [one()], drifting("another")))
    assert quiet(ticks.tick(three(), [one()], drifting("m", 0.0)))
