"""Solution -> RoutingTable: one a policy and front-end, all a router must know and nothing that moves by itself.

On the routing-weight path; pure. The solution's flows become integers of 10,000; its prices and in-flight numbers go
beside them for the router's guard. Floats are rounded to six significant digits, so that noise in the last bits writes
no new table. Pod addresses and secrets never enter: a table names Services, urls and references.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isfinite
from typing import Final, NamedTuple

from headrace_api.largest_remainder import largest_remainder
from headrace_api.policy import Frontend
from headrace_api.table import (
    WEIGHT_TOTAL,
    ClassRoutes,
    Identity,
    ModelRoutes,
    Route,
    RoutingTable,
    ShedShare,
    TableEngine,
)
from headrace_operator.decision.tables.parts import PolicyParts, guard, policy_parts, table_engine
from headrace_operator.optimizer.solution import EngineResult, RouteResult, Solution, SourceResult
from headrace_operator.snapshot.model import EngineState, PolicyState, Snapshot, SourceDemand, SourceKey

NEXT_BEST: Final = 16  # engines without weight that a table lists a model, for spills and retries (the API page)
LIMIT_HEADROOM: Final = 1.3  # of the engines' own concurrency (the router page, Limits)
UNSTAMPED: Final = Identity(uid="-", term=0, revision=0)


def tidy(value: float) -> float:
    """The value at six significant digits; not finite, or below a billionth: 0."""
    return float(f"{value:.6g}") if isfinite(value) and value >= 1e-9 else 0.0


class View(NamedTuple):
    """One policy and front-end within a solution."""

    snapshot: Snapshot
    policy: PolicyState
    frontend: Frontend
    sources: tuple[SourceResult, ...]
    routes: dict[SourceKey, list[RouteResult]]
    engines: dict[str, EngineResult]
    states: dict[str, EngineState]
    demand: dict[SourceKey, SourceDemand]

    @property
    def routers(self) -> int:
        """R: router processes seen at the front-end, 1 when unknown."""
        return max(1, dict(self.snapshot.routers).get(self.frontend.name, 1))


def view_of(snapshot: Snapshot, policy: PolicyState, frontend: Frontend, solution: Solution) -> View:
    """The part of a solution that one table speaks of; sources without an eligible engine are left out."""
    routes: dict[SourceKey, list[RouteResult]] = {}
    for route in solution.routes:
        if route.source.policy == policy.id and route.source.frontend == frontend.name:
            routes.setdefault(route.source, []).append(route)
    return View(
        snapshot=snapshot,
        policy=policy,
        frontend=frontend,
        sources=tuple(source for source in solution.sources if source.source in routes),
        routes=routes,
        engines={engine.engine: engine for engine in solution.engines},
        states={engine.id: engine for engine in snapshot.engines},
        demand={demand.key: demand for demand in snapshot.demand},
    )


def build_table(view: View, slack: float) -> RoutingTable | None:
    """The table of a view, not yet stamped; None when none of its models has an eligible engine.

    slack: as it is published.
    """
    models = _models(view)
    if not models:
        return None
    listed = {route.engine for model in models for entry in model.classes for route in entry.routes}
    split = any(len(model.classes) > 1 for model in models)
    namespace, _, name = view.policy.id.partition("/")
    parts: PolicyParts = policy_parts(view.policy.spec, slack)
    return RoutingTable(
        schema_version=1,
        identity=UNSTAMPED,
        policy=name,
        policy_namespace=namespace,
        frontend=view.frontend.name,
        issued="",
        hash="",
        models=models,
        engines=_engines(view, listed),
        class_edges=view.snapshot.class_edges if split else (),
        routers=view.routers,
        guard=guard(
            view.policy.spec, view.routers, sum(_in_flight_here(view, engine) for engine in view.engines.values())
        ),
        **parts._asdict(),
    )


def _models(view: View) -> tuple[ModelRoutes, ...]:
    """One entry a served name; a model that is not split stands once for all classes of a split table."""
    by_model: dict[str, list[SourceResult]] = {}
    for source in sorted(view.sources, key=lambda source: source.source):
        by_model.setdefault(source.source.model, []).append(source)
    classes = 1 + max((source.source.prompt_class for source in view.sources), default=0)
    count = 1 + len(view.snapshot.class_edges) if classes > 1 else 1
    bases = {served: base for base, served in view.policy.served}
    requires = {model.name: tuple(sorted(model.requires)) for model in view.policy.spec.models}
    learned = dict(view.snapshot.bytes_per_token)
    return tuple(
        ModelRoutes(
            model=model,
            classes=_spread([_class_routes(view, source) for source in sources], count),
            requires=requires.get(bases.get(model, model), ()),
            bytes_per_token=tidy(learned.get(model, 4.0)) or 4.0,
        )
        for model, sources in sorted(by_model.items())
    )


def _spread(entries: list[ClassRoutes], count: int) -> tuple[ClassRoutes, ...]:
    """Entries of a split model, or the one entry of an unsplit one for each of ``count`` classes."""
    return tuple(entries) if len(entries) == count else tuple(entries[:1]) * count


def _class_routes(view: View, source: SourceResult) -> ClassRoutes:
    routes = sorted(view.routes[source.source], key=lambda route: route.engine)
    weights = weights_of(routes, view.engines)
    kept = [(route, weight) for route, weight in zip(routes, weights, strict=True) if weight > 0]
    spare = [route for route, weight in zip(routes, weights, strict=True) if weight == 0]
    spare.sort(key=lambda route: (tidy(route.reduced_cost), tidy(route.unloaded), route.engine))
    kept += [(route, 0) for route in spare[:NEXT_BEST]]
    return ClassRoutes(
        routes=tuple(
            Route(
                engine=route.engine,
                weight=weight,
                reduced_cost=tidy(route.reduced_cost),
                work_share=tidy(_work_share(route, view.engines)),
            )
            for route, weight in sorted(kept, key=lambda pair: pair[0].engine)
        ),
        shed=_shed(view.demand.get(source.source), source),
    )


def _work_share(route: RouteResult, engines: dict[str, EngineResult]) -> float:
    capacity = engines[route.engine].capacity
    return route.work / capacity if capacity > 0 else 0.0


def weights_of(routes: Sequence[RouteResult], engines: dict[str, EngineResult]) -> list[int]:
    """Integers that sum to WEIGHT_TOTAL in the order of ``routes``.

    With nothing routed they are proportional to capacity in this source's own requests, and equal where no capacity is
    known: weights are never all zero.
    """
    for shares in (
        [route.flow for route in routes],
        [engines[route.engine].capacity / route.work if route.work > 0 else 0.0 for route in routes],
    ):
        weights = largest_remainder(shares, WEIGHT_TOTAL)
        if any(weights):
            return weights
    return largest_remainder([1.0] * len(routes), WEIGHT_TOTAL)


def _shed(demand: SourceDemand | None, source: SourceResult) -> tuple[ShedShare, ...]:
    """Shares to refuse by priority, those above zero, the lowest priority first."""
    offered = {name: share * source.demand for name, _, share in demand.priorities} if demand else {}
    shares = [
        ShedShare(priority=name, share=min(1.0, float(f"{rate / offered[name]:.6f}")))
        for name, rate in source.shed
        if rate > 0 and offered.get(name, 0.0) > 0
    ]
    return tuple(share for share in shares if share.share > 0)


def _in_flight_here(view: View, engine: EngineResult) -> float:
    return sum(
        number
        for policy, frontend, number in engine.in_flight
        if policy == view.policy.id and frontend == view.frontend.name
    )


def _engines(view: View, listed: Iterable[str]) -> tuple[TableEngine, ...]:
    wanted = set(listed)
    eligible = {route.engine for routes in view.routes.values() for route in routes}
    carried = {name: _carried(view.engines[name]) for name in sorted(eligible)}
    whole = sum(carried.values())
    round_trips = {route.engine: route.round_trip for routes in view.routes.values() for route in routes}
    used = {model for source in view.sources for model in (source.source.model,)}
    return tuple(
        table_engine(
            view.states[name],
            view.frontend,
            used,
            in_flight_here=tidy(_in_flight_here(view, view.engines[name])),
            in_flight_all=tidy(
                sum(number for policy, _, number in view.engines[name].in_flight if policy == view.policy.id)
            ),
            concurrency_limit=_limit(view, name),
            capacity_share=min(1.0, tidy(carried[name] / whole)) if whole > 0 else 0.0,
            round_trip=tidy(round_trips[name]),
        )
        for name in sorted(wanted)
    )


def _carried(engine: EngineResult) -> float:
    """Requests/s of the mix it carries at C_j."""
    return engine.capacity / engine.mean_work if engine.mean_work > 0 else 0.0


def _limit(view: View, name: str) -> int:
    """Requests in flight that one router process may have on an engine (the router page, Limits); 0: no limit.

    limit_fj = max(1, 1.3 maxConcurrency x ready replicas x max(load_fj / load_j, 1 / (4 F_j))) / R, load_fj taken from
    the numbers in flight, F_j the front-ends that may use j.
    """
    state = view.states[name]
    concurrency = state.spec.capacity.per_replica.max_concurrency
    if concurrency is None:
        return 0
    engine = view.engines[name]
    whole = sum(number for _, _, number in engine.in_flight)
    share = _in_flight_here(view, engine) / whole if whole > 0 else 0.0
    least = 1.0 / (4.0 * max(1, _frontends_of(view, name)))
    limit = max(1.0, LIMIT_HEADROOM * concurrency * max(1.0, state.ready) * max(share, least))
    return max(1, ceil(tidy(limit / view.routers)))


def _frontends_of(view: View, engine: str) -> int:
    """F_j: front-ends whose pairs with the engine exist in the snapshot's network."""
    return len({(pair.policy, pair.frontend) for pair in view.snapshot.network if pair.engine == engine})
