"""Whose table stands where: the words that every way of publishing shares.

On the routing-weight path; pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace_api.base import resource_id
from headrace_api.policy import RoutingPolicy
from headrace_api.table import RoutingTable
from headrace_operator.decision.tables.encode import configmap_name

LOCAL: Final = "local"
"""The cluster that the operator runs in, as ``publish.cluster`` calls it."""


class TableKey(NamedTuple):
    """Policy id and front-end."""

    policy: str
    frontend: str


class Place(NamedTuple):
    """Where a table is wanted: the ConfigMap's name and cluster, always in the policy's namespace.

    retain: it stays when nobody asks for it any more. uid: the policy's ("" where there is none). publishes: False for
    a Shadow policy, whose last table stays as it is. created: the policy's, RFC 3339; of two that want one name the
    older has it.
    """

    name: str
    cluster: str = LOCAL
    retain: bool = False
    uid: str = ""
    publishes: bool = True
    created: str = ""


class Refusal(NamedTuple):
    """Why a table does not stand: a condition's reason, and the sentence."""

    reason: str
    message: str


def key_of(table: RoutingTable) -> TableKey:
    """Whose table it is."""
    return TableKey(f"{table.policy_namespace}/{table.policy}", table.frontend)


def table_places(policies: Iterable[RoutingPolicy]) -> dict[TableKey, Place]:
    """Where the table of each policy and front-end is wanted."""
    return {
        TableKey(resource_id(policy.metadata), frontend.name): Place(
            name=configmap_name(policy.metadata.name, frontend),
            cluster=frontend.publish.cluster,
            retain=frontend.publish.on_delete == "Retain",
            uid=policy.metadata.uid,
            publishes=policy.spec.mode == "Enforce",
            created=policy.metadata.creation_timestamp,
        )
        for policy in policies
        for frontend in policy.spec.frontends
    }
