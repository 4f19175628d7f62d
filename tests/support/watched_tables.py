"""Tables that a router watches as ConfigMaps: what is put there, and what the router says of it."""

from __future__ import annotations

from typing import Any

from headrace_api.table import RoutingTable
from headrace_router.server.server import Router
from support.fake_api import config_map
from support.router_process import metric, ready
from support.router_table import routing_table, table_bytes

AT = {"a": "http://127.0.0.1:9"}


def of(revision: int, **fields: Any) -> dict[str, Any]:
    return config_map(table_bytes(routing_table(AT, revision=revision, **fields)).decode())


def revision(router: Router) -> int:
    table: RoutingTable | None = router.tables.followed[0].table
    return -1 if table is None else table.identity.revision


async def detail(router: Router) -> dict[str, Any]:
    found: dict[str, Any] = (await ready(router.admin_address))[1]["tables"][0]
    return found


async def watched(router: Router) -> float:
    return await metric(router.admin_address, "headrace_table_watched", table="inference/headrace-chat-fe-a")
