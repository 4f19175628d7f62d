"""Small routing tables for router tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from headrace_api.table import (
    WEIGHT_TOTAL,
    ClassRoutes,
    Identity,
    ModelRoutes,
    Route,
    RoutingTable,
    TableAffinity,
    TableAffinityKey,
    TableEngine,
    TableServedModel,
    TableTimeouts,
)

MODEL = "m"
SESSION = TableAffinity(keys=(TableAffinityKey(header="x-session-id"),))
# Connects must not fail because the machine is busy; no test waits for these.
PATIENT = TableTimeouts(connect=10.0, first_byte=60.0, idle=60.0, send=60.0, unary=0.0)


@dataclass(frozen=True)
class EngineAt:
    """An engine of a test table."""

    urls: Sequence[str]
    weight: int = 1
    limit: int = 0
    served_name: str | None = None


def routing_table(
    engines: Mapping[str, EngineAt | str],
    *,
    revision: int = 1,
    model: str = MODEL,
    policy: str = "chat",
    uid: str = "u",
    shed: tuple[Any, ...] = (),
    **settings: Any,
) -> RoutingTable:
    """A table of one model and one prompt class. Engines by bare name; a string is an engine with that url."""
    given = {name: EngineAt((at,)) if isinstance(at, str) else at for name, at in engines.items()}
    total = sum(at.weight for at in given.values()) or 1
    weights = {name: at.weight * WEIGHT_TOTAL // total for name, at in given.items()}
    first = next(iter(weights))
    weights[first] += WEIGHT_TOTAL - sum(weights.values())
    routes = tuple(Route(engine=f"inference/{name}", weight=weight) for name, weight in sorted(weights.items()))
    settings.setdefault("timeouts", PATIENT)
    return RoutingTable(
        schema_version=1,
        identity=Identity(uid=uid, term=0, revision=revision),
        policy=policy,
        policy_namespace="inference",
        frontend="fe-a",
        issued="2026-01-01T00:00:00Z",
        hash=f"h{revision}",
        models=(ModelRoutes(model=model, classes=(ClassRoutes(routes=routes, shed=shed),)),),
        engines=tuple(
            TableEngine(
                id=f"inference/{name}",
                models=(TableServedModel(model=model, served_name=at.served_name),) if at.served_name else (),
                urls=tuple(at.urls),
                concurrency_limit=at.limit,
            )
            for name, at in sorted(given.items())
        ),
        **settings,
    )


def table_bytes(table: RoutingTable) -> bytes:
    """The table as a bare table.json."""
    return msgspec.json.encode(table)


def manifest(table: RoutingTable) -> str:
    """The table as a ConfigMap manifest."""
    return str(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"headrace-{table.policy}-{table.frontend}", "namespace": "inference"},
                "data": {"table.json": table_bytes(table).decode()},
            }
        )
    )
