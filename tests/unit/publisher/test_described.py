"""How much ``kubectl describe`` prints of a policy: the audit has to be readable in one go.

The rendering below is checked against kubectl's own by tests/e2e/test_publisher_live.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_api.names import (
    CAPACITY_SUFFICIENT,
    PROFILE_DRIFT,
    PUBLISHED,
    READY,
    SIGNALS_FRESH,
    SOLVED,
    STALLED,
    WEIGHTS_REALIZED,
)
from headrace_api.status import (
    MAX_FIGURE,
    MAX_HISTORY,
    MAX_HISTORY_TEXT,
    MAX_MESSAGE,
    MAX_SIGNAL_TEXT,
    MAX_SIGNALS,
    MAX_WEIGHT_TEXT,
    MAX_WHY,
    MAX_WHY_TEXT,
    Condition,
    LatencyParts,
    PolicyStatus,
    PolicySummary,
)
from support.described import described
from support.engine_manifests import AT

MAX_LINES = 200
MAX_BYTES = 32 * 1024
FRONTENDS = 50
# Stalled and Reconciling never stand together.
TYPES = (
    READY,
    STALLED,
    PUBLISHED,
    SOLVED,
    CAPACITY_SUFFICIENT,
    SIGNALS_FRESH,
    PROFILE_DRIFT,
    WEIGHTS_REALIZED,
)
# Reasons of Events that one policy can have within the hour that they last.
EVENTS = 12


def fullest() -> PolicyStatus:
    """The largest status of a policy with 50 front-ends, whatever the number of engines: all lists full to bursting."""
    figure = "f" * (MAX_FIGURE // 2)
    return PolicyStatus(
        observed_generation=7,
        conditions=tuple(
            Condition(
                type=name,
                status="True",
                reason="CapacitySufficient",
                message="m" * MAX_MESSAGE,
                last_transition_time=AT,
                observed_generation=7,
            )
            for name in TYPES
        ),
        as_of=AT,
        summary=PolicySummary(
            demand=figure,
            capacity=figure,
            utilization=figure,
            engines=figure,
            latency=LatencyParts(total=figure, network=figure, ttft=figure, decode=figure),
            shed=figure,
            revision=2**40,
            hash="h" * 64,
            solver=figure,
            changed=AT,
        ),
        weights=("w" * MAX_WEIGHT_TEXT,) * FRONTENDS,
        why=("y" * MAX_WHY_TEXT,) * MAX_WHY,
        history=("h" * MAX_HISTORY_TEXT,) * MAX_HISTORY,
        signals=("s" * MAX_SIGNAL_TEXT,) * MAX_SIGNALS,
    )


def events() -> list[str]:
    """The table of Events below a status, as kubectl prints it."""
    head = ["Events:", "  Type  Reason  Age  From  Message", "  ----  ------  ---  ----  -------"]
    line = f"  Warning  {'R' * 20}  {'9m (x99 over 59m)'}  headrace-operator  "
    return [*head, *[line + "e" * MAX_HISTORY_TEXT] * EVENTS]


def test_status_and_events_are_readable_at_50_front_ends() -> None:
    text = [*described(msgspec.to_builtins(fullest())), *events()]
    assert len(text) < MAX_LINES
    assert sum(len(line.encode()) + 1 for line in text) < MAX_BYTES


def test_the_rendering() -> None:
    value: dict[str, Any] = {
        "asOf": AT,
        "why": ["a", "b"],
        "summary": {"demand": "1", "latency": {"total": "2"}},
        "none": [],
    }
    assert described(value) == [
        "Status:",
        f"  As Of:  {AT}",
        "  None:",
        "  Summary:",
        "    Demand:  1",
        "    Latency:",
        "      Total:  2",
        "  Why:",
        "    a",
        "    b",
    ]
