"""The parts of a table that restate specs: how engines are reached, and the policy's rules in base units.

On the routing-weight path; pure. What stands here changes only when someone edits a resource.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

from headrace_api.engine import InferenceEngineSpec
from headrace_api.policy import Frontend, RoutingPolicySpec
from headrace_api.table import (
    Guard,
    TableAffinity,
    TableAffinityKey,
    TableAuth,
    TableEjection,
    TableEngine,
    TableLimits,
    TablePriority,
    TableQueue,
    TableRetry,
    TableServedModel,
    TableService,
    TableTimeouts,
    TableTls,
)
from headrace_api.units import number, seconds
from headrace_api.urls import normal_url
from headrace_operator.snapshot.model import EngineState

KEYLESS_FOLLOW_IN_FLIGHT: Final = 40.0  # requests a router holds from which in-flight follows weights (the optimizer)
DEFAULT_PRIORITIES: Final = (TablePriority(name="default", value=0),)


class PolicyParts(NamedTuple):
    """Fields of the table that come from the policy's spec alone."""

    affinity: TableAffinity
    retry: TableRetry
    timeouts: TableTimeouts
    limits: TableLimits
    queue: TableQueue
    ejection: TableEjection
    priorities: tuple[TablePriority, ...]
    priority_header: str
    paths: tuple[str, ...]
    widen_after: float | None
    measure_round_trips: bool


def policy_parts(spec: RoutingPolicySpec, slack: float) -> PolicyParts:
    """The policy's rules as the router reads them: seconds, bytes, percent.

    slack: see decision/tables/slack.py; the retry share lies by it between the saturated and the idle one.
    """
    budget = spec.protection.retry.budget
    ranked = sorted(spec.protection.shedding.priorities, key=lambda priority: (priority.value, priority.name))
    return PolicyParts(
        affinity=TableAffinity(
            keys=tuple(
                TableAffinityKey(header=key.header, field=key.field, prefix=key.prefix is not None)
                for key in spec.affinity.keys
            ),
            slack=seconds(spec.affinity.slack),
        ),
        retry=TableRetry(
            max_attempts=spec.protection.retry.max_attempts,
            percent=round(budget.saturated_percent + (budget.idle_percent - budget.saturated_percent) * slack, 4),
            saturated_percent=float(budget.saturated_percent),
            slack=slack,
            min_per_second=float(budget.min_per_second),
        ),
        timeouts=TableTimeouts(
            connect=seconds(spec.timeouts.connect),
            first_byte=seconds(spec.timeouts.first_byte),
            idle=seconds(spec.timeouts.idle),
            send=seconds(spec.timeouts.send),
            unary=seconds(spec.timeouts.unary),
        ),
        limits=TableLimits(body=round(number(spec.limits.body)), retry_body=round(number(spec.limits.retry_body))),
        queue=TableQueue(max=spec.queue.max, deadline=seconds(spec.queue.deadline)),
        ejection=TableEjection(
            consecutive=spec.ejection.consecutive,
            base=seconds(spec.ejection.base),
            max=seconds(spec.ejection.max),
            max_percent=spec.ejection.max_percent,
            min_healthy=spec.ejection.min_healthy,
        ),
        priorities=tuple(TablePriority(name=entry.name, value=entry.value) for entry in ranked) or DEFAULT_PRIORITIES,
        priority_header=spec.protection.shedding.header,
        paths=tuple(sorted(spec.paths)),
        widen_after=None if spec.staleness.widen_after is None else seconds(spec.staleness.widen_after),
        measure_round_trips=spec.network.measured,
    )


def guard(spec: RoutingPolicySpec, routers: int, in_flight: float) -> Guard | None:
    """Parameters of the routers' guard (the optimizer page, The guard); a rule has no prices and so no guard.

    in_flight: the sum of N*_fj over the front-end's engines; routers: its processes.
    """
    if spec.strategy.type != "Optimized":
        return None
    if spec.affinity.keys:
        return Guard(x=seconds(spec.affinity.slack), z=1.0, nu=0.0)
    if routers > 1:
        return Guard(x=1.0, z=1.0, nu=0.0)
    if in_flight / routers >= KEYLESS_FOLLOW_IN_FLIGHT:
        return Guard(x=0.0, z=0.0, nu=1.0)
    return Guard(x=0.0, z=1.0, nu=0.0)


def uses_service(spec: InferenceEngineSpec, frontend: Frontend) -> bool:
    """Whether the front-end reaches the engine by its Service: same cluster, or neither names one (api: Reach)."""
    return spec.endpoints.service is not None and spec.location.cluster == frontend.location.cluster


def table_engine(
    engine: EngineState,
    frontend: Frontend,
    models: Collection[str],
    *,
    in_flight_here: float,
    in_flight_all: float,
    concurrency_limit: int,
    capacity_share: float,
    round_trip: float,
) -> TableEngine:
    """An engine as a front-end's routers see it; ``models``: the served names that the table has routes for."""
    spec = engine.spec
    service = spec.endpoints.service if uses_service(spec, frontend) else None
    return TableEngine(
        id=engine.id,
        models=tuple(
            TableServedModel(model=served.name, served_name=served.served_name)
            for served in sorted(spec.models, key=lambda served: served.name)
            if served.served_name is not None and served.served_name != served.name and served.name in models
        ),
        urls=() if service else _urls(spec.endpoints.urls),
        service=TableService(name=service.name, namespace=engine.id.partition("/")[0], port=service.port)
        if service
        else None,
        tls=_tls(spec),
        auth=TableAuth(secret=spec.endpoints.auth.secret_ref.name, key=spec.endpoints.auth.secret_ref.key)
        if spec.endpoints.auth
        else None,
        max_model_len=spec.max_model_len or 0,
        capabilities=tuple(sorted(spec.capabilities)),
        in_flight_here=in_flight_here,
        in_flight_all=in_flight_all,
        concurrency_limit=concurrency_limit,
        capacity_share=capacity_share,
        round_trip=round_trip,
    )


@lru_cache(maxsize=8192)
def _urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Normal forms, sorted; kept, because every tick restates every engine of every table."""
    return tuple(sorted({normal_url(url) for url in urls}))


def _tls(spec: InferenceEngineSpec) -> TableTls | None:
    tls = spec.endpoints.tls
    if tls is None:
        return None
    source = tls.ca_from.config_map if tls.ca_from else None
    return TableTls(
        server_name=tls.server_name,
        ca_config_map=source.name if source else None,
        ca_key=source.key if source else None,
    )
