"""What a router has beside the request path: where its tables and the operator's heartbeat come from.

Beside every path. Files, or ConfigMaps and Leases through the API server; the rest of the router can't tell. Must make
no connection: whatever is made here begins to ask when it is followed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace_api.table import TABLE_KEY
from headrace_router.kube.client import KubeApi
from headrace_router.tables.heartbeat import Heartbeat
from headrace_router.tables.kube_heartbeat import LeaseBeat
from headrace_router.tables.kube_table import ConfigMapSource
from headrace_router.tables.table_file import FileSource
from headrace_router.tables.table_source import TableSource
from headrace_router.tables.tables_from import TablesFrom


@dataclass(slots=True)
class Surroundings:
    """The parts. api: None where there is no API server to ask."""

    sources: list[TableSource]
    heartbeat: Heartbeat
    api: KubeApi | None
    leases: list[LeaseBeat] = field(default_factory=list)


def surroundings(tables: TablesFrom, chance: Callable[[], float]) -> Surroundings:
    """Sources in the order of preference: files as named, then ConfigMaps as named."""
    api = KubeApi(tables.api) if tables.api is not None else None
    sources: list[TableSource] = [FileSource(path) for path in tables.files]
    for namespace, name in tables.configmaps:
        mounted = None
        if tables.fallback is not None:
            mounted = FileSource(tables.fallback / namespace / name / TABLE_KEY)
        trouble = tables.no_api if api is None else None
        sources.append(ConfigMapSource(api, namespace, name, mounted, chance=chance, trouble=trouble))
    namespaces = sorted({namespace for namespace, _ in tables.configmaps}) if api is not None else ()
    leases = [LeaseBeat(api, each, clock=time.monotonic, wall=time.time, chance=chance) for each in namespaces if api]
    return Surroundings(
        sources, Heartbeat(tables.files, leases, tables.no_api if tables.configmaps else None), api, leases
    )
