"""Penalties: who is an outlier, for how long, what it costs, and how it recovers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace_operator.estimators.penalty import (
    Measured,
    Penalty,
    PenaltyRules,
    Verdict,
    advance,
    judge,
    may_penalize,
    quantized,
)

RULES = PenaltyRules(min_requests=10, after=10, recover_after=10, recover_step=5, expiry=100)


def engine(
    tbot: float | None = 1.0,
    ttft: float | None = None,
    requests: float = 50.0,
    utilization: float = 0.5,
    errors: float | None = None,
) -> Measured:
    return Measured(0.0, ttft, tbot, requests, 20 * requests, utilization, errors, requests)


HEALTHY = engine()


@pytest.mark.parametrize(
    ("measured", "peers", "penalized", "kind"),
    [
        pytest.param(engine(3.0), [HEALTHY, HEALTHY], False, "Bad", id="slow against profile and peers"),
        pytest.param(engine(3.0), [engine(3.1), engine(2.9)], False, "Good", id="as slow as its peers: the new normal"),
        pytest.param(engine(3.0), [engine(0.5)], False, "Bad", id="peers faster than their profile"),
        pytest.param(engine(3.0), [], False, "Bad", id="no peers: its profile alone"),
        pytest.param(engine(3.0, requests=3), [HEALTHY], False, "Unclear", id="too few samples"),
        pytest.param(engine(1.0), [HEALTHY], False, "Good", id="healthy"),
        pytest.param(engine(1.6), [HEALTHY], False, "Unclear", id="between the thresholds"),
        pytest.param(engine(1.6), [HEALTHY], True, "Bad", id="between the thresholds, penalised: not yet well"),
        pytest.param(engine(1.2), [HEALTHY], True, "Good", id="below the lower threshold, penalised"),
        pytest.param(engine(None, 4.5), [engine(None, 1.0)], False, "Bad", id="late first tokens"),
        pytest.param(engine(None, 3.0), [engine(None, 1.0)], False, "Unclear", id="queues swing: a wider margin"),
        pytest.param(
            engine(None, 9.0, utilization=0.95), [HEALTHY], False, "Unclear", id="a queue at full load is load"
        ),
        pytest.param(engine(1.0, 4.5), [engine(1.0, 1.0)], False, "Bad", id="one signal is enough"),
        pytest.param(engine(None), [HEALTHY], False, "Unclear", id="nothing known"),
        pytest.param(engine(1.0, errors=0.5), [engine(errors=0.0)], False, "Bad", id="failing"),
        pytest.param(
            engine(1.0, errors=0.5), [engine(errors=0.4)], False, "Good", id="all fail alike: not this engine"
        ),
        pytest.param(engine(1.0, errors=0.1), [HEALTHY], False, "Good", id="few errors"),
        pytest.param(engine(1.0, requests=3, errors=0.9), [HEALTHY], False, "Unclear", id="errors of too few requests"),
    ],
)
def test_judge(measured: Measured, peers: list[Measured], penalized: bool, kind: str) -> None:
    assert judge(measured, peers, RULES, penalized=penalized).kind == kind


def test_the_factor_is_what_the_engine_still_does() -> None:
    verdict = judge(engine(3.2), [HEALTHY], RULES, penalized=False)
    assert (verdict.factor, verdict.reason) == (0.3, "TBOT 3.2 times its profile")
    assert judge(engine(1.0, errors=0.5), [], RULES, penalized=False).factor == 0.25
    assert judge(engine(1.0, 40.0), [], RULES, penalized=False).factor == 0.3
    assert judge(engine(2.5, 40.0), [], RULES, penalized=False).factor == 0.4


@pytest.mark.parametrize(("factor", "expected"), [(0.333, 0.35), (0.0, 0.05), (2.0, 1.0)])
def test_quantized(factor: float, expected: float) -> None:
    assert quantized(factor) == expected


BAD, GOOD, UNCLEAR = Verdict("Bad", 0.35, "TBOT 3.0 times its profile"), Verdict("Good"), Verdict("Unclear")


def play(verdicts: Iterable[tuple[float, Verdict]], state: Penalty | None = None, *, allowed: bool = True) -> Penalty:
    state = state or Penalty()
    for at, verdict in verdicts:
        state = advance(state, at, verdict, RULES, allowed=allowed)
    return state


def bad_for(start: int, seconds: int) -> list[tuple[float, Verdict]]:
    return [(float(at), BAD) for at in range(start, start + seconds + 1)]


PENALIZED = play(bad_for(0, 10))


def test_penalised_only_when_bad_for_long_enough() -> None:
    assert play(bad_for(0, 9)).factor == 1.0
    assert (PENALIZED.phase, PENALIZED.factor) == ("Penalized", 0.35)
    assert PENALIZED.reason == "TBOT 3.0 times its profile for 10 s"


def test_one_good_sample_ends_a_suspicion() -> None:
    assert play([*bad_for(0, 9), (10.0, GOOD), (11.0, BAD)]).phase == "Suspect"
    assert play([*bad_for(0, 9), (10.0, GOOD), (11.0, BAD)]).since == 11.0


def test_a_suspicion_that_nothing_confirms_lapses() -> None:
    assert play([(0.0, BAD), (5.0, UNCLEAR), (30.0, UNCLEAR)]).phase == "Normal"


def test_the_same_sample_seen_at_every_tick_counts_once() -> None:
    """The protection page: state machines advance on samples, never on ticks."""
    state = play([(0.0, BAD)])
    assert advance(state, 0.0, BAD, RULES, allowed=True) is state


def test_hysteresis_and_gradual_recovery() -> None:
    calm = play([(float(at), GOOD) for at in range(11, 21)], PENALIZED)
    assert calm.phase == "Penalized"
    recovering = play([(21.0, GOOD)], calm)
    assert (recovering.phase, recovering.factor) == ("Recovering", 0.6)
    steps = [play([(21.0 + at, GOOD) for at in range(1, until)], recovering).factor for until in range(1, 14)]
    assert steps == sorted(steps)
    assert sorted(set(steps)) == [0.6, 0.85, 1.0]
    assert play([(21.0 + at, GOOD) for at in range(1, 14)], recovering).phase == "Normal"


def test_a_relapse_during_recovery_is_penalised_at_once() -> None:
    recovering = play([(float(at), GOOD) for at in range(11, 22)], PENALIZED)
    relapsed = play([(22.0, BAD)], recovering)
    assert (relapsed.phase, relapsed.factor) == ("Penalized", 0.35)
    assert play([(22.0, BAD)], recovering, allowed=False).phase == "Recovering"


def test_a_penalty_expires_when_nothing_confirms_it() -> None:
    state = play([(float(at), UNCLEAR) for at in range(11, 110)], PENALIZED)
    assert state.phase == "Penalized"
    state = play([(110.0, UNCLEAR)], state)
    assert state.phase == "Recovering"
    assert "nothing confirmed it for 100 s" in state.reason


def test_a_penalty_follows_only_real_changes_under_the_new_load() -> None:
    assert play([(25.0, Verdict("Bad", 0.4, "x"))], PENALIZED).factor == 0.35
    assert play([(15.0, Verdict("Bad", 0.05, "x"))], PENALIZED).factor == 0.35
    assert play([(20.0, Verdict("Bad", 0.05, "x"))], PENALIZED).factor == 0.2
    assert play([(20.0, Verdict("Bad", 0.9, "x"))], PENALIZED).factor == 0.6


def test_a_penalty_goes_deep_only_step_by_step() -> None:
    """Three times as slow under its old load looks 20 times as slow: the first penalty goes to 0.3, not to 0.05."""
    deep = Verdict("Bad", 0.05, "TBOT 20 times its profile")
    state = play([(float(at), deep) for at in range(11)])
    factors = [state.factor]
    for at in range(11, 60):
        state = advance(state, float(at), deep, RULES, allowed=True)
        factors.append(state.factor)
    assert sorted(set(factors), reverse=True) == [0.3, 0.15, 0.1, 0.05]


def test_not_allowed_says_so_and_costs_nothing() -> None:
    state = play(bad_for(0, 20), allowed=False)
    assert (state.factor, state.exempt) == (1.0, True)
    assert "at most 50% of a model's capacity may be" in state.reason


MODELS = {name: frozenset({"m"}) for name in "abcd"} | {"x": frozenset({"other"})}
CAPACITY = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "x": 9.0}


@pytest.mark.parametrize(
    ("name", "penalized", "share", "allowed"),
    [
        pytest.param("a", [], 0.5, True, id="one of four"),
        pytest.param("a", ["b"], 0.5, True, id="exactly half"),
        pytest.param("a", ["b", "c"], 0.5, False, id="never more"),
        pytest.param("a", ["x"], 0.5, True, id="another model's do not count"),
        pytest.param("x", [], 0.5, False, id="the only engine of its model is never penalised"),
        pytest.param("unknown", [], 0.5, True, id="of no model"),
    ],
)
def test_never_all_at_once(name: str, penalized: list[str], share: float, allowed: bool) -> None:
    assert may_penalize(name, penalized, CAPACITY, MODELS, share) is allowed
