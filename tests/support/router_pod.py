"""Routers for tests that live as in a pod: tables, heartbeat and Services come from an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from headrace_api.table import RoutingTable, TableService
from headrace_router.kube.credentials import Credentials
from headrace_router.server.server import Router, Settings
from headrace_router.tables.tables_from import TablesFrom
from support.fake_api import FakeApi
from support.router_table import EngineAt, routing_table

CONFIGMAP = ("inference", "headrace-chat-fe-a")


@asynccontextmanager
async def watching(api: FakeApi | None, token: Path, **more: Any) -> AsyncIterator[Router]:
    """A router in this loop that watches one ConfigMap."""
    known = Credentials(api.url, token) if api is not None else None
    tables = TablesFrom(**({"configmaps": (CONFIGMAP,), "api": known} | more))
    local = ("127.0.0.1", 0)
    router = Router(Settings(tables, listen=local, admin=local, drain_delay=0.0, grace=0.0))
    await router.start()
    try:
        yield router
    finally:
        await router.stop()


def services_table(
    engines: Mapping[str, tuple[str, int, int]], namespace: str = "inference", **fields: Any
) -> RoutingTable:
    """A table of engines by Service: name -> (Service, port, weight)."""
    weights = {name: EngineAt((), weight=weight) for name, (_, _, weight) in engines.items()}
    table = routing_table(weights, **fields)
    placed = tuple(
        msgspec.structs.replace(
            engine, service=TableService(name=engines[name][0], namespace=namespace, port=engines[name][1])
        )
        for engine in table.engines
        for name in (engine.id.partition("/")[2],)
    )
    return msgspec.structs.replace(table, engines=placed)
