"""Statuses at every bound of their types at once: larger than any that is written."""

from __future__ import annotations

from headrace_api import status
from headrace_api.status import Condition, EngineStatus, FittedProfile, LatencyParts, PolicyStatus, PolicySummary

NOW = "2026-11-29T12:00:00Z"
CONDITIONS = tuple(
    Condition(
        type=f"Type{index}",
        status="True",
        reason="R" * 64,
        message="m" * status.MAX_MESSAGE,
        last_transition_time=NOW,
        observed_generation=7,
    )
    for index in range(status.MAX_CONDITIONS)
)
FIGURE = "f" * status.MAX_FIGURE
LARGEST = {
    "policy": PolicyStatus(
        observed_generation=7,
        conditions=CONDITIONS,
        as_of=NOW,
        summary=PolicySummary(
            demand=FIGURE,
            capacity=FIGURE,
            utilization=FIGURE,
            engines=FIGURE,
            latency=LatencyParts(total=FIGURE, network=FIGURE, ttft=FIGURE, decode=FIGURE),
            shed=FIGURE,
            revision=2**53,
            hash="h" * 128,
            solver=FIGURE,
            changed=NOW,
        ),
        weights=("w" * 160,) * 64,
        why=("y" * 160,) * 40,
        history=("h" * 240,) * 10,
        signals=("s" * 160,) * 8,
    ),
    "engine": EngineStatus(
        observed_generation=7,
        conditions=CONDITIONS,
        as_of=NOW,
        models="m" * 160,
        ready_replicas=1_000_000,
        replicas_from=FIGURE,
        penalty=FIGURE,
        profile=FittedProfile(fitted=NOW, reference=FIGURE, ttft="t" * 512, tbot="t" * 512, error=FIGURE),
        why=("y" * 160,) * 40,
        signals=("s" * 160,) * 8,
    ),
}
