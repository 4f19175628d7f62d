"""What a table becomes when its operator has been silent for long: weights drift to what engines can carry.

Beside the request path; pure. Only where the policy asks for it (staleness.widenAfter); by default the last weights
hold for ever. Old weights fit an old demand: spread by capacity nothing is best, and nothing is far from bearable. The
prices go with the solution that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Final

import msgspec

from headrace_api.largest_remainder import largest_remainder
from headrace_api.names import HEARTBEAT_STALE_SECONDS
from headrace_api.table import WEIGHT_TOTAL, ClassRoutes, ModelRoutes, RoutingTable

# The API page, Life of a table: phased in over five minutes.
PHASE_S: Final = 300.0
STEPS: Final = 20


def drift(table: RoutingTable, silence: float | None) -> float:
    """How far a table has drifted, 0 to 1, in STEPS steps.

    silence: seconds since the operator's heartbeat; None: its life is unknown, which is no silence.
    """
    if table.widen_after is None or silence is None or silence <= HEARTBEAT_STALE_SECONDS:
        return 0.0
    over = silence - max(table.widen_after, HEARTBEAT_STALE_SECONDS)
    return min(1.0, max(0.0, floor(over / PHASE_S * STEPS) / STEPS))


def widened(table: RoutingTable, part: float) -> RoutingTable:
    """The table with ``part`` of each weight replaced by the engine's share of capacity, and without prices."""
    if part <= 0.0:
        return table
    capacity = {engine.id: engine.capacity_share for engine in table.engines}
    models = tuple(_model(model, capacity, part) for model in table.models)
    return msgspec.structs.replace(table, models=models, guard=None)


def _model(model: ModelRoutes, capacity: Mapping[str, float], part: float) -> ModelRoutes:
    return msgspec.structs.replace(model, classes=tuple(_class(each, capacity, part) for each in model.classes))


def _class(entry: ClassRoutes, capacity: Mapping[str, float], part: float) -> ClassRoutes:
    """Integers that sum to WEIGHT_TOTAL; no engine has a known capacity: as it was."""
    known = [capacity.get(route.engine, 0.0) for route in entry.routes]
    whole, total = sum(known), sum(route.weight for route in entry.routes)
    if whole <= 0.0 or not total:
        return entry
    shares = [
        (1.0 - part) * route.weight / total + part * (share / whole)
        for route, share in zip(entry.routes, known, strict=True)
    ]
    weights = largest_remainder(shares, WEIGHT_TOTAL)
    routes = zip(entry.routes, weights, strict=True)
    return msgspec.structs.replace(
        entry, routes=tuple(msgspec.structs.replace(route, weight=weight) for route, weight in routes)
    )
