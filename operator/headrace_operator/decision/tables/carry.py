"""Tables that stand although the world moved a little: carried over, with what an edit changed put in.

On the routing-weight path; pure. When the warm model says that nothing need move, weights, prices and in-flight numbers
of the last table stay; only what restates specs is written anew, so that an edited timeout reaches the routers and
nothing else does. A model that has lost its last engine keeps its old routes: an answer that may fail beats a 404.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace_api.policy import Frontend
from headrace_api.table import ModelRoutes, RoutingTable, TableEngine
from headrace_operator.decision.tables.parts import guard, policy_parts, table_engine
from headrace_operator.snapshot.model import EngineState, PolicyState


def refreshed(
    old: RoutingTable,
    policy: PolicyState,
    frontend: Frontend,
    states: Mapping[str, EngineState],
    bytes_per_token: Mapping[str, float],
    slack: float,
) -> RoutingTable:
    """The old table with today's rules and endpoints; nothing that was solved changes.

    bytes_per_token: as learned, by model; it is told anew so rarely that routers may hear of it at once. slack: as it
    is published.
    """
    requires = {entry.name: tuple(sorted(entry.requires)) for entry in policy.spec.models}
    bases = {served: base for base, served in policy.served}
    models = tuple(
        msgspec.structs.replace(
            entry,
            requires=requires.get(bases.get(entry.model, entry.model), entry.requires),
            bytes_per_token=bytes_per_token.get(entry.model, entry.bytes_per_token),
        )
        for entry in old.models
    )
    used = {entry.model for entry in models}
    engines = tuple(
        _restated(engine, states[engine.id], frontend, used) if engine.id in states else engine
        for engine in old.engines
    )
    here = sum(engine.in_flight_here for engine in engines)
    return msgspec.structs.replace(
        old,
        models=models,
        engines=engines,
        guard=guard(policy.spec, old.routers, here),
        **policy_parts(policy.spec, slack)._asdict(),
    )


def _restated(old: TableEngine, state: EngineState, frontend: Frontend, models: set[str]) -> TableEngine:
    return table_engine(
        state,
        frontend,
        models,
        in_flight_here=old.in_flight_here,
        in_flight_all=old.in_flight_all,
        concurrency_limit=old.concurrency_limit,
        capacity_share=old.capacity_share,
        round_trip=old.round_trip,
    )


def lost_models(old: RoutingTable, new: RoutingTable | None, policy: PolicyState) -> tuple[str, ...]:
    """Models of the old table that the policy still rules at this front-end and the new table has no engine for."""
    elsewhere = {model for frontend, model, _ in policy.conflicts if frontend == old.frontend}
    ruled = {model for _, model in policy.served} - elsewhere
    present = {entry.model for entry in new.models} if new is not None else set()
    return tuple(entry.model for entry in old.models if entry.model in ruled - present)


def with_lost_models(old: RoutingTable, new: RoutingTable, models: tuple[str, ...]) -> RoutingTable:
    """The new table with the old routes of models that have no eligible engine now."""
    if not models:
        return new
    count = 1 + len(new.class_edges)
    kept = [_spread(entry, count) for entry in old.models if entry.model in models]
    listed = {engine.id for engine in new.engines}
    wanted = {route.engine for entry in kept for routes in entry.classes for route in routes.routes}
    engines = [engine for engine in old.engines if engine.id in wanted - listed]
    return msgspec.structs.replace(
        new,
        models=tuple(sorted([*new.models, *kept], key=lambda entry: entry.model)),
        engines=tuple(sorted([*new.engines, *engines], key=lambda engine: engine.id)),
    )


def _spread(entry: ModelRoutes, count: int) -> ModelRoutes:
    if len(entry.classes) == count:
        return entry
    return msgspec.structs.replace(entry, classes=entry.classes[:1] * count)


def same_weights(old: RoutingTable, new: RoutingTable) -> bool:
    """Whether two tables send the same shares to the same engines and refuse the same shares."""
    return _weights(old) == _weights(new)


def same_routes(old: RoutingTable, new: RoutingTable) -> bool:
    """Whether two tables say the same of every engine they list, prices and in-flight numbers apart."""
    return old.class_edges == new.class_edges and _routes(old) == _routes(new) and old.routers == new.routers


def _routes(table: RoutingTable) -> list[tuple[object, ...]]:
    return [
        (
            model.model,
            [([(route.engine, route.weight) for route in entry.routes], entry.shed) for entry in model.classes],
        )
        for model in table.models
    ]


def _weights(table: RoutingTable) -> list[tuple[object, ...]]:
    return [
        (
            model.model,
            [
                ([(route.engine, route.weight) for route in entry.routes if route.weight > 0], entry.shed)
                for entry in model.classes
            ],
        )
        for model in table.models
    ]
