"""A solution with its cross references: what a route costs, which engines are full, which use is dearest.

On the routing-weight path; pure. All sentences are read from this one book, so that plan, explain and status can't
disagree. Costs are marginal seconds a request: unloaded latency plus work times the engine's price.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_operator.optimizer.solution import EngineResult, IneligiblePair, RouteResult, Solution, SourceResult
from headrace_operator.snapshot.eligibility import bare_name
from headrace_operator.snapshot.model import EngineState, PolicyState, Snapshot, SourceKey
from headrace_operator.strategies.base import ComponentResult

FULL_TOLERANCE: Final = 1e-6  # relative; a load within it is the bound itself
USED_SHARE: Final = 5e-5  # of a source's demand: what rounds to no weight at all is not in use


class Book(NamedTuple):
    """One component's solution, indexed. excluded: pairs without a column, by policy."""

    snapshot: Snapshot
    result: ComponentResult
    engines: dict[str, EngineResult]
    states: dict[str, EngineState]
    policies: dict[str, PolicyState]
    sources: dict[SourceKey, SourceResult]
    routes: dict[SourceKey, list[RouteResult]]
    excluded: dict[str, list[IneligiblePair]]

    @property
    def solution(self) -> Solution:
        """The solution itself."""
        return self.result.solution

    @property
    def priced(self) -> bool:
        """Whether prices stand behind the split (rules have none)."""
        return self.solution.status == "Optimal"

    def cost(self, route: RouteResult) -> float:
        """Marginal seconds of one more request on the route."""
        return route.unloaded + route.work * self.engines[route.engine].price

    def used(self, source: SourceKey) -> list[RouteResult]:
        """Routes of a source that carry traffic, the largest first."""
        least = USED_SHARE * self.sources[source].demand
        used = [route for route in self.routes.get(source, []) if route.flow > least]
        return sorted(used, key=lambda route: (-route.flow, route.engine))

    def dearest(self, source: SourceKey) -> RouteResult | None:
        """The marginal choice: the dearest route in use, of equal ones that which has room left."""
        return max(
            self.used(source),
            key=lambda route: (round(self.cost(route), 9), not self.full(route.engine), route.unloaded, route.engine),
            default=None,
        )

    def limit(self, engine: EngineResult) -> float:
        """Work up to which an engine is filled before anything dearer is used."""
        return engine.soft if self.priced and engine.soft > 0 else engine.capacity

    def full(self, name: str) -> bool:
        """Whether an engine carries all it is meant to carry."""
        engine = self.engines[name]
        limit = self.limit(engine)
        return limit > 0 and engine.load >= limit * (1.0 - FULL_TOLERANCE)

    def shed(self, source: SourceKey) -> float:
        """Requests/s of a source that are refused."""
        return sum(rate for _, rate in self.sources[source].shed)

    def of_policy(self, policy: str) -> list[SourceKey]:
        """Sources of one policy, sorted."""
        return sorted(source for source in self.sources if source.policy == policy)


def open_book(snapshot: Snapshot, result: ComponentResult) -> Book:
    """The book of a component's result."""
    routes: dict[SourceKey, list[RouteResult]] = {}
    for route in sorted(result.solution.routes, key=lambda route: (route.source, route.engine)):
        routes.setdefault(route.source, []).append(route)
    excluded: dict[str, list[IneligiblePair]] = {}
    for pair in result.solution.ineligible:
        excluded.setdefault(pair.source.policy, []).append(pair)
    return Book(
        snapshot=snapshot,
        result=result,
        engines={engine.engine: engine for engine in result.solution.engines},
        states={engine.id: engine for engine in snapshot.engines},
        policies={policy.id: policy for policy in snapshot.policies},
        sources={source.source: source for source in result.solution.sources},
        routes=routes,
        excluded=excluded,
    )


def per_second(engine: EngineResult, work: float) -> float:
    """Work in replica-seconds per second as requests/s of the engine's mix."""
    return work / engine.mean_work if engine.mean_work > 0 else 0.0


def label(source: SourceKey, book: Book) -> str:
    """How people call a source: its front-end, and its model where the policy serves several."""
    several = len({key.model for key in book.of_policy(source.policy)}) > 1
    return f"{source.frontend} {source.model}" if several else source.frontend


def short(engine: str) -> str:
    """An engine's bare name."""
    return bare_name(engine)
