"""Small tables, and places for them, for tests of the publisher."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace_api.policy import RoutingPolicy
from headrace_api.table import ClassRoutes, Identity, ModelRoutes, Route, RoutingTable, TableEngine
from headrace_operator.decision.tables.encode import stamped
from headrace_operator.publisher.places import Place, TableKey, table_places
from support.engine_manifests import AT, policy_dict


def table_of(
    revision: int = 1,
    weight: int = 10_000,
    *,
    frontend: str = "fe-a",
    name: str = "chat",
    namespace: str = "inf",
    uid: str = "",
    term: int = 1,
) -> RoutingTable:
    """A table of model m over engines a and b; uid: of the policy, "uid-NAME" where it is not told."""
    routes = (Route(engine="inf/a", weight=weight), Route(engine="inf/b", weight=10_000 - weight))
    bare = RoutingTable(
        schema_version=1,
        identity=Identity(uid="-", term=0, revision=0),
        policy=name,
        policy_namespace=namespace,
        frontend=frontend,
        issued="",
        hash="",
        models=(ModelRoutes(model="m", classes=(ClassRoutes(routes=routes),)),),
        engines=(TableEngine(id="inf/a"), TableEngine(id="inf/b")),
    )
    return stamped(bare, Identity(uid=uid or f"uid-{name}", term=term, revision=revision), AT)


def policy_of(
    name: str = "chat", *, uid: str = "", created: str = AT, generation: int = 1, **spec: Any
) -> RoutingPolicy:
    """A policy with front-ends fe-a and fe-b as an API server gives it."""
    made = policy_dict(name, **spec)
    made["metadata"] |= {"uid": uid or f"uid-{name}", "creationTimestamp": created, "generation": generation}
    return msgspec.convert(made, RoutingPolicy)


def places_of(*policies: RoutingPolicy) -> dict[TableKey, Place]:
    return table_places(policies)


def key(name: str = "chat", frontend: str = "fe-a") -> TableKey:
    return TableKey(f"inf/{name}", frontend)
