"""The ladder of a reading's age; what is no measurement is unknown, never zero."""

from __future__ import annotations

from math import inf, nan

import pytest

from headrace_operator.snapshot.readings import Ladder, usable
from headrace_operator.snapshot.signals import Reading


@pytest.mark.parametrize(
    ("reading", "elapsed", "value", "origin"),
    [
        pytest.param(Reading(value=3.0), 0.0, 3.0, "Measured", id="fresh"),
        pytest.param(Reading(value=0.0), 0.0, 0.0, "Measured", id="a real zero is a measurement"),
        pytest.param(Reading(value=3.0, age=30.0), 0.0, 3.0, "Measured", id="at the edge of fresh"),
        pytest.param(Reading(value=3.0, age=20.0), 11.0, 3.0, "Held", id="time since the reading counts"),
        pytest.param(Reading(value=3.0, age=120.0), 0.0, 3.0, "Held", id="at the edge of held"),
        pytest.param(Reading(value=3.0, age=121.0), 0.0, None, "Unknown", id="too old"),
        pytest.param(Reading(value=3.0, age=80.0, interval=30.0), 0.0, 3.0, "Measured", id="slow series hold longer"),
        pytest.param(Reading(value=3.0, age=230.0, interval=30.0), 0.0, 3.0, "Held", id="slow series degrade later"),
        pytest.param(Reading(value=3.0, age=10.0, interval=nan), 0.0, 3.0, "Measured", id="odd interval"),
        pytest.param(Reading(value=3.0), -5.0, 3.0, "Measured", id="a clock that went back"),
        pytest.param(Reading(value=nan), 0.0, None, "Unknown", id="nan"),
        pytest.param(Reading(value=inf), 0.0, None, "Unknown", id="infinite"),
        pytest.param(Reading(value=-1.0), 0.0, None, "Unknown", id="negative"),
        pytest.param(Reading(value=1.0, age=nan), 0.0, None, "Unknown", id="age nan"),
        pytest.param(None, 0.0, None, "Unknown", id="never read"),
    ],
)
def test_ladder(reading: Reading | None, elapsed: float, value: float | None, origin: str) -> None:
    found = usable(reading, elapsed, Ladder(), "load of a")
    assert (found.value, found.origin) == (value, origin)
    assert bool(found.note) == (reading is not None and origin != "Measured")
