"""Builds the view of tables that selection works with.

Off the request path, in a thread beside the loop, and never compiled: compiled code gives the interpreter back only
when it ends, and a table of a thousand engines would hold up every stream for as long as it takes to read it in
(docs/adr/0021). Building changes nothing that the view in force uses; engines and endpoints that stay keep their state,
unchanged weights keep their affinity orders and turns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headrace_api.table import ClassRoutes, ModelRoutes, RoutingTable, TableEngine
from headrace_router.core.routes import ClassView, EngineView, RouteSet, RouteView
from headrace_router.core.slots import SlotOrders
from headrace_router.core.state import Pool, endpoints_at
from headrace_router.core.states import ALONE, States
from headrace_router.core.view import ModelView, PolicyView, Signature, TableView
from headrace_router.core.weighted import succeed

_NO_ENDPOINTS: Final[Mapping[str, Collection[str]]] = MappingProxyType({})


def build_view(
    tables: Sequence[RoutingTable],
    previous: TableView | None = None,
    *,
    endpoints: Mapping[str, Collection[str]] = _NO_ENDPOINTS,
    phase: float = 0.0,
    states: States = ALONE,
) -> TableView:
    """Merge tables that ``parse_table`` accepted, one a policy.

    Args:
        tables: in the order of preference: of two that rule one model the first does.
        previous: the view in force, whose states go on.
        endpoints: urls of engines whose Service is known, by engine id (none: no endpoint is ready); they stand
            instead of the table's own. Those of a Service that isn't known now stay as they were.
        phase: this process's part of a turn, 0 to 1, so that processes don't march in step; kept from ``previous``.
        states: where counts stand; kept from ``previous``.
    """
    return _Builder(tables, previous, endpoints, phase, states).build()


class _Builder:
    def __init__(
        self,
        tables: Sequence[RoutingTable],
        previous: TableView | None,
        endpoints: Mapping[str, Collection[str]],
        phase: float,
        states: States,
    ) -> None:
        self.states = states if previous is None else previous.states
        self.tables = tables
        self.previous = previous
        self.resolved = endpoints
        self.phase = phase if previous is None else previous.phase
        self.routers = max((table.routers for table in tables), default=1)
        self.orders: dict[Signature, SlotOrders] = {}
        self.pools: dict[frozenset[str], Pool] = {}
        self.pools_of: dict[str, list[Pool]] = {}
        self.engines: dict[str, EngineView] = {}
        self.conflicts: list[str] = []

    def build(self) -> TableView:
        # By issue time, so that of two tables that differ on an engine's addresses the younger one's hold.
        for table in sorted(self.tables, key=lambda table: (table.issued, table.policy_namespace, table.policy)):
            for config in table.engines:
                self._engine(config)
        before = {policy.key: policy for policy in self.previous.policies} if self.previous is not None else {}
        policies = []
        models: dict[str, ModelView] = {}
        for table in self.tables:
            policy = PolicyView(table, before.get(f"{table.policy_namespace}/{table.policy}"), self.states)
            policies.append(policy)
            for model in table.models:
                if model.model in models:
                    ruler = models[model.model].policy.key
                    self.conflicts.append(f"model {model.model}: {policy.key} is not in force, {ruler} rules it")
                else:
                    models[model.model] = ruled = self._model(model, policy)
                    policy.pools = tuple({id(pool): pool for pool in (*policy.pools, ruled.pool)}.values())
        for engine in self.engines.values():
            engine.pools = tuple(self.pools_of.get(engine.id, ()))
        for ids, pool in self.pools.items():
            limits = [self.engines[name].limit for name in ids]
            pool.limit = sum(limits) if all(limits) else 0
        self.previous = None  # route sets keep this builder; it must not keep every view before it
        conflicts = tuple(self.conflicts)
        return TableView(tuple(policies), models, self.engines, self.orders, conflicts, self.phase, self.states)

    def _engine(self, config: TableEngine) -> None:
        known = self.engines.get(config.id)
        before = self.previous.engines.get(config.id) if self.previous is not None else None
        addresses: Collection[str] | None = None
        if config.service is not None:
            addresses = self.resolved.get(config.id)
            if addresses is None and before is not None and before.config.service == config.service:
                addresses = before.addresses
        urls = config.urls if addresses is None else addresses
        state = before.state if before is not None else known.state if known is not None else None
        state = state or self.states.engine(config.id)
        endpoints = endpoints_at(urls, before.endpoints if before is not None else (), state.endpoint)
        engine = EngineView(config, state, endpoints, addresses)
        if known is not None:
            engine.merge(known)
        if len(endpoints) > 1:
            ids = tuple(endpoint.url for endpoint in endpoints)
            weights = (1.0,) * len(ids)
            orders = before.orders if before is not None else None
            engine.orders = orders if orders is not None and orders.ids == ids else self._orders_of(ids, weights)
            engine.turns = succeed(ids, weights, self.phase, before.turns if before is not None else None)
        self.engines[config.id] = engine

    def _model(self, model: ModelRoutes, policy: PolicyView) -> ModelView:
        ids = frozenset(route.engine for routes in model.classes for route in routes.routes)
        pool = self.pools.get(ids)
        if pool is None:
            pool = self.pools[ids] = self.states.pool(ids)
            for engine in ids:
                self.pools_of.setdefault(engine, []).append(pool)
        before = self.previous.models.get(model.model) if self.previous is not None else None
        classes = tuple(
            self._class(model.model, routes, policy.table, pool, _class_before(before, index))
            for index, routes in enumerate(model.classes)
        )
        return ModelView(model, policy, classes, pool)

    def _class(
        self, model: str, routes: ClassRoutes, table: RoutingTable, pool: Pool, before: ClassView | None
    ) -> ClassView:
        def build(candidates: Sequence[RouteView], previous: RouteSet | None) -> RouteSet:
            return RouteSet(candidates, pool, table.guard, self.routers, self._orders_of, self.phase, previous)

        own = {config.id: config for config in table.engines}
        candidates = []
        for route in sorted(routes.routes, key=lambda route: route.engine):
            engine = self.engines[route.engine]
            engine.weighted = engine.weighted or route.weight > 0
            config = own[route.engine]
            candidates.append(RouteView(engine, config, route, _served_name(config, model), self.routers))
        shed = {shed.priority: shed.share for shed in routes.shed if shed.share > 0}
        return ClassView(tuple(candidates), shed, build, before)

    def _orders_of(self, ids: tuple[str, ...], weights: tuple[float, ...]) -> SlotOrders:
        signature = (ids, weights)
        found = self.orders.get(signature)
        if found is None:
            found = self.previous.orders.get(signature) if self.previous is not None else None
            self.orders[signature] = found = found or SlotOrders(ids, weights)
        return found


def _served_name(engine: TableEngine, model: str) -> str | None:
    for served in engine.models:
        if served.model == model and served.served_name != model:
            return served.served_name
    return None


def _class_before(model: ModelView | None, index: int) -> ClassView | None:
    return model.classes[index] if model is not None and index < len(model.classes) else None
