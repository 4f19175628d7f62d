"""Small routing tables and selectors for tests of the router's core."""

from __future__ import annotations

import json
from typing import Any

from headrace_api.table import RoutingTable
from headrace_router.core.build_view import build_view
from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.core.table_check import parse_table

Weights = dict[str, int]


def engine(name: str, **fields: Any) -> dict[str, Any]:
    """One engine of a table; its url is made from its name."""
    return {"id": f"ns/{name}", "urls": [f"http://{name}.example:8000"], **fields}


def route(name: str, weight: int, **fields: Any) -> dict[str, Any]:
    return {"engine": f"ns/{name}", "weight": weight, **fields}


def raw_table(weights: Weights | None = None, **fields: Any) -> dict[str, Any]:
    """A table of one model ``m`` over the engines of ``weights`` (of 10,000), as JSON would hold it."""
    weights = weights if weights is not None else {"a": 5000, "b": 3000, "c": 2000}
    table: dict[str, Any] = {
        "schemaVersion": 1,
        "identity": {"uid": "u", "term": 1, "revision": 1},
        "policy": "chat",
        "policyNamespace": "ns",
        "frontend": "fe",
        "issued": "2026-01-01T00:00:00Z",
        "hash": "h",
        "models": [{"model": "m", "classes": [{"routes": [route(name, weight) for name, weight in weights.items()]}]}],
        "engines": [engine(name) for name in weights],
    }
    table.update(fields)
    return table


def encoded(table: dict[str, Any]) -> bytes:
    return json.dumps(table).encode()


def parsed(table: dict[str, Any]) -> RoutingTable:
    found = parse_table(encoded(table))
    assert isinstance(found, RoutingTable), found
    return found


def make_table(weights: Weights | None = None, **fields: Any) -> RoutingTable:
    return parsed(raw_table(weights, **fields))


def make_selector(*tables: RoutingTable, **fields: Any) -> Selector:
    fields.setdefault("rng", lambda: 0.5)
    return Selector(build_view(tables), **fields)


def swap(selector: Selector, *tables: RoutingTable) -> None:
    selector.install(build_view(tables, selector.view))


KEYS = [b"s%d" % number for number in range(400)]
GUARD = {"x": 1.0, "z": 1.0, "nu": 0.0}


def facts(key: bytes | None = None, **fields: Any) -> RequestFacts:
    return RequestFacts("m", key, **fields)


def refused(found: object) -> Refusal:
    assert isinstance(found, Refusal), found
    return found


def held(selector: Selector, key: bytes | None = None, **fields: Any) -> Pick:
    """A pick that keeps its place."""
    return picked(selector.pick(facts(key, **fields), 0.0))


def freely(selector: Selector, key: bytes | None = None, **fields: Any) -> str:
    """The engine's name of a pick that is released at once."""
    pick = held(selector, key, **fields)
    pick.release()
    return pick.engine_name


def one_model(*routes: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"model": "m", "classes": [{"routes": list(routes)}], **fields}]


def picked(found: object) -> Pick:
    assert isinstance(found, Pick), found
    return found
