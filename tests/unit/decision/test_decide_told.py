"""Decisions over many ticks: what people are told, when, and how often. Starts, break-glass."""

from __future__ import annotations

from typing import Any

from headrace_api.policy import RoutingPolicy
from headrace_operator.snapshot.signals import Signals, SignalStatus
from support.operator_ticks import TARGET, Ticks, offered, one, quiet, reasons, three
from support.world import engine, policy

FROZEN = {"annotations": {"headrace.dev/freeze-until": "2026-11-29T13:00:00Z", "headrace.dev/why": "load test"}}


def awaited(state: str = "Unknown", since: str = "2026-11-29T12:00:05Z", *, read: bool = False, **more: str) -> Signals:
    states = [SignalStatus(name="engine ns/a", state=state, since=since, read=read)]
    states += [SignalStatus(name=f"engine ns/{name}", state=other) for name, other in more.items()]
    return Signals(states=tuple(states))


def test_a_cold_start_does_not_cry_wolf() -> None:
    """A signal that was never read is no staleness until it has had ``staleness.hold`` (30 s) to come."""
    ticks = Ticks()
    first = ticks.tick(three(), [one()], awaited())
    assert reasons(first) == [("RoutingPolicy", "ns/p", "WeightsChanged")]
    assert ticks.condition("SignalsFresh") == ("Unknown", "Starting")
    assert ticks.statuses["ns/p"].signals == ()
    assert quiet(ticks.tick(three(), [one()], awaited()))
    late = ticks.tick(three(), [one()], awaited(), after=30.0)
    assert reasons(late) == [("RoutingPolicy", "ns/p", "SignalsStale")]
    assert ticks.condition("SignalsFresh") == ("False", "Unknown")
    assert len(ticks.statuses["ns/p"].signals) == 1


def test_a_cold_start_hides_nothing_that_is_known() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], awaited(b="Held"))
    assert ticks.condition("SignalsFresh") == ("False", "Held")
    assert ticks.statuses["ns/p"].signals == ("engine ns/b: Held",)


def test_a_restart_waits_for_readings_before_it_says_stale() -> None:
    """The condition of before stands while the new process has read nothing; then it says what it found."""
    ticks = Ticks()
    ticks.tick(three(), [one()], awaited("Fresh"))
    ticks.restart()
    assert reasons(ticks.tick(three(), [one()], awaited(since="2026-11-29T12:00:10Z"))) == []
    assert ticks.condition("SignalsFresh") == ("True", "Fresh")
    assert quiet(ticks.tick(three(), [one()], awaited("Fresh")))


def test_the_condition_follows_the_rungs_and_nothing_else() -> None:
    """Seen with a Prometheus away: SignalsFresh said Held for as long as it was, while declared values ruled.

    And what became unknown after it was held was taken for a start, for 30 s.
    """
    ticks = Ticks()

    def said() -> tuple[str, str, str]:
        found = next(one for one in ticks.statuses["ns/p"].conditions if one.type == "SignalsFresh")
        return found.reason, found.message, found.last_transition_time

    ticks.tick(three(), [one()], awaited("Fresh", b="Fresh"))
    went = ticks.tick(three(), [one()], awaited("Held", b="Fresh"), after=5.0)
    assert reasons(went) == [("RoutingPolicy", "ns/p", "SignalsStale")]
    reason, message, since = said()
    assert (reason, message) == ("Held", "engine ns/a Held")
    assert quiet(ticks.tick(three(), [one()], awaited("Held", b="Fresh"), after=5.0))
    assert reasons(ticks.tick(three(), [one()], awaited("Held", b="Held"), after=5.0)) == []
    assert said() == ("Held", "engine ns/a Held, engine ns/b Held", since)
    ticks.tick(three(), [one()], awaited("Held", b="Widened"), after=5.0)
    assert said() == ("Widened", "engine ns/a Held, engine ns/b Widened", since)
    assert reasons(ticks.tick(three(), [one()], awaited("Unknown", read=True, b="Widened"), after=5.0)) == []
    assert said() == ("Unknown", "engine ns/a Unknown, engine ns/b Widened", since)
    assert "engine ns/a: Unknown since 2026-11-29T12:00:05Z" in ticks.statuses["ns/p"].signals
    assert quiet(ticks.tick(three(), [one()], awaited("Unknown", read=True, b="Widened"), after=5.0))


def test_a_metric_source_concerns_the_policies_whose_engines_it_knows() -> None:
    """People see that Prometheus is away, and not only that all engines are."""
    ticks = Ticks()
    away = [("engine ns/a from prom", "Held"), ("metric source prom", "Held"), ("metric source other", "Unknown")]
    ticks.tick(three(), [one()], Signals(states=tuple(SignalStatus(name=name, state=rung) for name, rung in away)))
    assert ticks.statuses["ns/p"].signals == ("engine ns/a from prom: Held", "metric source prom: Held")


def test_a_clock_set_back_hides_no_stale_signal() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()], awaited(since="2026-11-29T15:00:00Z"))
    assert ticks.condition("SignalsFresh") == ("False", "Unknown")


def test_a_freeze_is_told_in_events_and_history() -> None:
    """The API page, Break-glass: shown in status, history, Events; once, also over a restart."""
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    frozen = ticks.tick(three(), [one(metadata=FROZEN)], offered(15))
    assert reasons(frozen) == [("RoutingPolicy", "ns/p", "PolicyFrozen")]
    assert "rev 1: frozen until" in ticks.statuses["ns/p"].history[0]
    assert quiet(ticks.tick(three(), [one(metadata=FROZEN)], offered(15)))
    ticks.restart()
    assert reasons(ticks.tick(three(), [one(metadata=FROZEN)], offered(15))) == []
    resumed = ticks.tick(three(), [one()], offered(15))
    assert reasons(resumed) == [("RoutingPolicy", "ns/p", "PolicyResumed")]
    assert len(ticks.statuses["ns/p"].history) == 3


def test_a_freeze_without_effect_is_told() -> None:
    """Who thinks that a policy is frozen must hear at once that it isn't."""
    ticks = Ticks()
    ticks.tick(three(), [one()], offered(15))
    tomorrow = {"annotations": {"headrace.dev/freeze-until": "2026-12-05T00:00:00Z"}}
    decision = ticks.tick(three(), [one(metadata=tomorrow)], offered(15))
    assert reasons(decision) == [("RoutingPolicy", "ns/p", "BreakGlassIgnored")]
    assert ticks.condition("Ready") == ("True", "BreakGlassIgnored")
    assert "more than 24 h ahead and has no effect" in ticks.statuses["ns/p"].conditions[0].message
    assert quiet(ticks.tick(three(), [one(metadata=tomorrow)], offered(15)))


def drained(until: str) -> list[Any]:
    metadata = {"annotations": {"headrace.dev/drain-until": until, "headrace.dev/why": "new driver"}}
    return [engine("a", 20, region="r1", metadata=metadata), *three()[1:]]


def test_a_drain_is_told_on_the_engine_and_its_policies() -> None:
    ticks = Ticks()
    ticks.tick(three(), [one()])
    both = ("InferenceEngine", "ns/a"), ("RoutingPolicy", "ns/p")
    for engines, reason in (
        (drained("2026-11-29T12:30:00Z"), "EngineDrained"),
        (three(), "EngineResumed"),
        (drained("2026-12-29T12:30:00Z"), "BreakGlassIgnored"),
        (three(), ""),
    ):
        told = [event for _ in range(2) for event in reasons(ticks.tick(engines, [one()]))]
        said = [event for event in told if event[2] != "WeightsChanged"]
        assert said == ([(*who, reason) for who in both] if reason else [])


def test_further_steps_of_a_bounded_shift_are_not_blamed_on_the_noise_of_demand() -> None:
    """Seen in a session: a round trip was edited, and each step after the first was told as "demand 100 %"."""
    ticks = Ticks()

    def asks(latency: str) -> RoutingPolicy:
        trips = [{"from": "r1", "to": "r2", "latency": "100ms"}, {"from": "r1", "to": "r3", "latency": latency}]
        return policy(network={"roundTrip": trips}, objective=TARGET, publication={"maxShiftPercent": 10})

    engines = [engine("a", region="r2"), engine("b", region="r3")]
    ticks.tick(engines, [asks("500ms")], offered(8))
    told: list[str] = []
    for step in range(12):
        told += [line for _, line in ticks.tick(engines, [asks("1ms")], offered(8 + 0.01 * (step % 3))).history]
    assert ": network " in told[0], told
    assert len(told) == 10
    assert all(": settling " in line for line in told[1:]), told


def test_an_engine_that_a_policy_can_never_use_is_none_of_its_news() -> None:
    """Seen on a cluster: each policy of a namespace told of every engine in it, of its drains and its stale signals."""
    ticks = Ticks()
    other = policy("other", models=[{"name": "n"}])
    stale = Signals(states=(SignalStatus(name="engine ns/a", state="Held", since="2026-11-29T12:00:00Z"),))
    ticks.tick([*three(), engine("d", models=[{"name": "n"}])], [one(), other])
    told = ticks.tick([*drained("2026-11-29T12:30:00Z"), engine("d", models=[{"name": "n"}])], [one(), other], stale)
    assert {"EngineDrained", "SignalsStale"} <= {reason for _, name, reason in reasons(told) if name == "ns/p"}
    assert [reason for _, name, reason in reasons(told) if name == "ns/other"] == []
    assert ticks.statuses["ns/other"].signals == ()
