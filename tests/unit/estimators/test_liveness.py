"""Liveness of endpoints: refused in a row is death, silence is not."""

from __future__ import annotations

import pytest

from headrace_operator.estimators.liveness import Liveness, Outcome, engine_alive


def after(*outcomes: Outcome, limit: int = 3) -> Liveness:
    state = Liveness()
    for step, outcome in enumerate(outcomes):
        state = state.observe(float(step), outcome, limit)
    return state


@pytest.mark.parametrize(
    ("outcomes", "up"),
    [
        pytest.param((), None, id="never tried"),
        pytest.param(("Read",), True, id="read"),
        pytest.param(("Read", "Refused"), None, id="one refusal is not death"),
        pytest.param(("Read", "Refused", "Refused", "Refused"), False, id="refused in a row"),
        pytest.param(("Refused", "Refused", "Read", "Refused"), None, id="a read begins anew"),
        pytest.param(("Refused", "Refused", "Answered", "Refused"), None, id="an answer begins anew"),
        pytest.param(
            ("Refused", "Failed", "Refused", "Refused"), False, id="a time-out between neither counts nor heals"
        ),
        pytest.param(("Failed",) * 20, None, id="time-outs alone are never death"),
        pytest.param(("Refused",) * 3 + ("Failed",), False, id="the dead stay dead through a time-out"),
        pytest.param(("Refused",) * 4, False, id="and through more refusals"),
        pytest.param(("Refused",) * 3 + ("Answered",), None, id="something answers again"),
        pytest.param(("Refused",) * 3 + ("Read",), True, id="back"),
    ],
)
def test_rule(outcomes: tuple[Outcome, ...], up: bool | None) -> None:
    assert after(*outcomes).up is up


def test_dead_with_a_higher_limit_stays_dead() -> None:
    assert after("Refused", limit=1).observe(9.0, "Refused", 5).up is False


def test_the_same_attempt_counts_once() -> None:
    state = after("Refused")
    assert state.observe(0.0, "Refused", 2) == state


@pytest.mark.parametrize(
    ("ups", "alive"),
    [((), None), ((True, False), True), ((False, False), False), ((None, False), None), ((None, True), True)],
)
def test_engine(ups: tuple[bool | None, ...], alive: bool | None) -> None:
    assert engine_alive([Liveness(up) for up in ups]) is alive
