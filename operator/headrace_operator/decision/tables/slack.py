"""How much room a front-end's engines have, by which its retry budget is set (the protection page, Retries).

On the routing-weight path; pure. Retries are cheap while engines are idle and the last straw when they are full. The
figure is published coarsely and held until it has moved, so that a load that wavers writes no tables.
"""

from __future__ import annotations

from typing import Final

from headrace_operator.decision.tables.build import View

WHOLE: Final = 100.0
STEP: Final = 0.05
# A published figure holds while the present one is less than this away from it.
HELD: Final = 0.2 - 1e-9


def slack_of(view: View) -> float | None:
    """1 - load / (target x C) over all engines that the front-end can reach, at least 0; in steps of STEP.

    A policy without a target is judged by the whole of C. None: no engine with a capacity can be reached, so that
    nothing can be said.
    """
    target = (view.policy.spec.objective.target_utilization_percent or WHOLE) / WHOLE
    reached = {route.engine for routes in view.routes.values() for route in routes}
    room = sum(target * view.engines[name].capacity for name in reached)
    load = sum(view.engines[name].load for name in reached)
    if room <= 0.0:
        return None
    return round(max(0.0, 1.0 - load / room) / STEP) * STEP


def held_slack(before: float | None, now: float | None) -> float:
    """What is published: the figure from before unless it has moved, or nothing is left; unknown at first: no room."""
    if now is None:
        return before or 0.0
    if before is None or now == 0.0 or abs(now - before) >= HELD:
        return round(now, 2)
    return before
