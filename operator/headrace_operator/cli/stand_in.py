"""Publishes tables only, until the cluster's publisher is there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace_api.table import RoutingTable
from headrace_operator.kube.client import KubeClient
from headrace_operator.publisher.configmap import configmap_manifest, load
from headrace_operator.publisher.places import Place, TableKey, key_of
from headrace_operator.publisher.publisher import Publisher
from headrace_operator.publisher.standalone import StandalonePublisher
from headrace_operator.publisher.state import StateIdentity


class TermBehind(Exception):
    standing = 0


def cluster_publisher(local: KubeClient, term: int, **_: Any) -> Publisher:
    publisher: Any = StandalonePublisher(Path(tempfile.mkdtemp()), StateIdentity(uid="", term=term))
    inner = publisher.tables.publish

    def publish(tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> Sequence[RoutingTable]:
        written = inner(tables, places)
        for table in written:
            manifest: Any = load(configmap_manifest(table, places[key_of(table)].name))
            meta = manifest["metadata"]
            local.apply(f"/api/v1/namespaces/{meta['namespace']}/configmaps/{meta['name']}", manifest)
        return written

    publisher.tables.publish = publish
    publisher.retained = frozenset()
    publisher.retarget = lambda _: None
    publisher.close = lambda: None
    return publisher
