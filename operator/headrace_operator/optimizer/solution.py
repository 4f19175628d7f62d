"""Solution: what a strategy says, with the prices that explain it. Every strategy ends in this shape.

Units: flows requests/s, loads and capacities replica-seconds per second, latencies and prices seconds.
"""

from __future__ import annotations

from typing import Literal

from headrace_operator.snapshot.model import SnapshotStruct, SourceKey

Status = Literal["Optimal", "Rule", "Failed"]


class RouteResult(SnapshotStruct, frozen=True, kw_only=True):
    """One eligible (source, engine) pair, used or not.

    flow: requests/s routed. previous: fraction before. work: w_ij, replica-seconds a request. unloaded: l0_ij,
    round trip plus unloaded latency, seconds. reduced_cost: rho_ij, max(0, l0 + w pi - lambda). move_price:
    gamma_ij, seconds a moved request. moved: b_ij, requests/s that were not here before. saving: seconds that a request
    moved here would save against the source's dearest used route, before the move price.
    """

    source: SourceKey
    engine: str
    flow: float
    previous: float
    work: float
    unloaded: float
    round_trip: float
    reduced_cost: float
    move_price: float = 0.0
    moved: float = 0.0
    saving: float = 0.0


class SourceResult(SnapshotStruct, frozen=True, kw_only=True):
    """One source: demand, shed by priority (name, requests/s), and its prices.

    price: lambda_i. marginal: seconds that one more request/s costs; None where it would be shed.
    """

    source: SourceKey
    demand: float
    shed: tuple[tuple[str, float], ...]
    price: float
    marginal: float | None


class EngineResult(SnapshotStruct, frozen=True, kw_only=True):
    """One engine: load, hard capacity C_j, soft capacity c_j, price pi_j (seconds per replica-second).

    mean_work: w of the mix it carries (the reference mix when idle), replica-seconds a request. in_flight: N*_fj by
    front-end (policy id, front-end, requests in flight), by Little's law from the solution, round trip
    included. fixed: the part of the load
    that is not these policies' (others' and background). soft: min(c_j, target x C_j), beyond which load costs P.
    ttft, decode: seconds to the first token and after it, of the mix it carries (the reference mix when idle) at this
    load, without the round trip.
    """

    engine: str
    load: float
    capacity: float
    effective: float
    price: float
    mean_work: float
    in_flight: tuple[tuple[str, str, float], ...] = ()
    hull_repaired: bool = False
    fixed: float = 0.0
    soft: float = 0.0
    ttft: float = 0.0
    decode: float = 0.0


class IneligiblePair(SnapshotStruct, frozen=True, kw_only=True):
    """A pair without a column, and the rule that excluded it (CamelCase reason, then the sentence people read)."""

    source: SourceKey
    engine: str
    reason: str
    message: str


class Solution(SnapshotStruct, frozen=True, kw_only=True):
    """The split of one connected component (or of one Shadow policy). shedding_open: whether it could shed at all."""

    status: Status
    objective: float
    sources: tuple[SourceResult, ...]
    routes: tuple[RouteResult, ...]
    engines: tuple[EngineResult, ...]
    ineligible: tuple[IneligiblePair, ...] = ()
    message: str = ""
    shedding_open: bool = False


__all__ = [
    "EngineResult",
    "IneligiblePair",
    "RouteResult",
    "Solution",
    "SourceResult",
    "Status",
]
