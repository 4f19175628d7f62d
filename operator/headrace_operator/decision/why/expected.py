"""Expected latency of what a solution routes, split into network, time to first token and decoding.

On the routing-weight path; pure. From the engines' profiles at the utilisation of the solution, u = load / c_j; prices
and penalties for shedding or moving take no part, so that the figure is one that users could measure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from headrace_operator.optimizer.solution import RouteResult, Solution
from headrace_operator.snapshot.model import Snapshot, SourceKey
from headrace_operator.snapshot.work import TRIM_FLOOR, engine_figures, tokens


class Latency(NamedTuple):
    """Mean seconds a request: network, time to first token at the engine, all tokens after the first."""

    network: float
    ttft: float
    decode: float

    @property
    def total(self) -> float:
        """End to end."""
        return self.network + self.ttft + self.decode


class Expected:
    """Expected latency of routes of one solution."""

    def __init__(self, snapshot: Snapshot, solution: Solution) -> None:
        self._states = {engine.id: engine for engine in snapshot.engines}
        self._results = {engine.engine: engine for engine in solution.engines}
        self._demand = {demand.key: demand for demand in snapshot.demand}
        self._known: dict[tuple[SourceKey, str], Latency] = {}
        names = sorted(self._results)
        figures = engine_figures([self._states[name].spec for name in names])
        self._figures = figures
        self._position = {name: position for position, name in enumerate(names)}

    def route(self, route: RouteResult) -> Latency:
        """Latency of a request of the route's source on its engine."""
        key = (route.source, route.engine)
        if key not in self._known:
            self._known[key] = self._of(route)
        return self._known[key]

    def mean(self, routes: Iterable[RouteResult]) -> Latency | None:
        """Mean over the routed requests; None when none is routed."""
        whole = 0.0
        sums = [0.0, 0.0, 0.0]
        for route in routes:
            if route.flow > 0:
                whole += route.flow
                for index, part in enumerate(self.route(route)):
                    sums[index] += route.flow * part
        return Latency(*(part / whole for part in sums)) if whole > 0 else None

    def _of(self, route: RouteResult) -> Latency:
        position = self._position[route.engine]
        state, result = self._states[route.engine], self._results[route.engine]
        demand = self._demand[route.source]
        per_source = np.array([demand.input_tokens]), np.array([demand.output_tokens])
        tokens_in, tokens_out = (float(part[0, position]) for part in tokens(self._figures, *per_source))
        at = result.load / result.effective if result.effective > 0 else 1.0
        ttft, tbot = (float(curve(at)) for curve in self._figures.curves[position])
        fresh = tokens_in * (1.0 - state.hit_share) - float(self._figures.reference_input[position])
        trim = max(state.trim.value, TRIM_FLOOR)
        first = max(0.0, ttft + fresh * float(self._figures.token_seconds[position]))
        return Latency(route.round_trip, first / trim, tokens_out * tbot / trim)
