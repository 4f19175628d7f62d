"""A table as the ConfigMap that carries it in a cluster, and back.

On the routing-weight path; pure. The ownerReference stands only where the collector of garbage is right: in the
policy's own cluster and namespace, for a table that goes with its policy (kubernetes/website#29480).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headrace_api.base import API_VERSION
from headrace_api.names import LABEL_FRONTEND, LABEL_MANAGED, LABEL_POLICY, LABEL_POLICY_UID
from headrace_api.table import TABLE_KEY, RoutingTable
from headrace_operator.decision.tables.encode import encode_table
from headrace_operator.kube.client import MANAGER, Json
from headrace_operator.publisher.configmap import MAX_LABEL
from headrace_operator.publisher.places import Place, TableKey, key_of

ANNOTATION_ON_DELETE: Final = "headrace.dev/on-delete"
RETAIN: Final = "Retain"
MAX_TERM: Final = 2**31 - 2**16
"""Near the end of what a Lease counts to: only an edit says so, and it must not leave leaders without a term."""
MAX_REVISION: Final = 10**11
"""More than anybody publishes: one table's edit must not drive all others' numbers to where routers refuse them."""
OURS: Final = f"{LABEL_MANAGED}={MANAGER}"


class Spot(NamedTuple):
    """A ConfigMap's namespace and name."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"{self.collection}/{self.name}"

    @property
    def collection(self) -> str:
        """Where the API server has its namespace's."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Seen(NamedTuple):
    """A ConfigMap of ours as it was last read or written.

    uid, version: the object's. table: None when it can't be read. key: whose it is. policy: the policy's uid. owners:
    uids of RoutingPolicies that own it.
    """

    uid: str
    version: str
    table: RoutingTable | None
    key: TableKey | None
    policy: str
    owners: frozenset[str]
    retain: bool


def table_manifest(table: RoutingTable, place: Place, spot: Spot, *, owned: bool) -> Json:
    """The ConfigMap to apply. owned: the policy is in the same cluster."""
    labels = {
        LABEL_FRONTEND: table.frontend,
        LABEL_MANAGED: MANAGER,
        LABEL_POLICY: table.policy,
        LABEL_POLICY_UID: table.identity.uid,
    }
    metadata: Json = {
        "name": spot.name,
        "namespace": spot.namespace,
        "labels": {key: value for key, value in labels.items() if len(value) <= MAX_LABEL},
        "annotations": {ANNOTATION_ON_DELETE: RETAIN if place.retain else "Delete"},
    }
    if owned and not place.retain and place.uid:
        owner = {"apiVersion": API_VERSION, "kind": "RoutingPolicy", "name": table.policy, "uid": place.uid}
        metadata["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": False}]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {TABLE_KEY: encode_table(table).decode()},
    }


def wanted_spot(key: TableKey, place: Place) -> Spot:
    """Where a table is wanted: always in the policy's namespace."""
    return Spot(key.policy.partition("/")[0], place.name)


def spot_of(found: Json) -> Spot:
    """Where an object that was read stands."""
    metadata = found["metadata"]
    return Spot(str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def labelled_ours(found: Mapping[str, Any]) -> bool:
    """Whether an operator made the object."""
    return _metadata(found, "labels").get(LABEL_MANAGED) == MANAGER


def seen_of(found: Json) -> Seen:
    """What is known of a ConfigMap that was read."""
    metadata = found.get("metadata") or {}
    labels = _metadata(found, "labels")
    data = found.get("data")
    text = data.get(TABLE_KEY) if isinstance(data, dict) else None
    table: RoutingTable | None = None
    try:
        table = msgspec.json.decode(text, type=RoutingTable) if isinstance(text, str) else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        table = None
    if table is not None and (table.policy_namespace != metadata.get("namespace") or table.identity.term > MAX_TERM):
        table = None
    if table is not None and table.identity.revision > MAX_REVISION:
        # Under a later term any revision is new to routers, so counting may begin again.
        table = msgspec.structs.replace(table, identity=msgspec.structs.replace(table.identity, revision=0))
    key = key_of(table) if table is not None else None
    if key is None and labels.get(LABEL_POLICY) and labels.get(LABEL_FRONTEND):
        key = TableKey(f"{metadata.get('namespace')}/{labels[LABEL_POLICY]}", labels[LABEL_FRONTEND])
    return Seen(
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        table=table,
        key=key,
        policy=str(labels.get(LABEL_POLICY_UID, "")),
        owners=owners_of(found),
        retain=_metadata(found, "annotations").get(ANNOTATION_ON_DELETE) == RETAIN,
    )


def owners_of(found: Mapping[str, Any]) -> frozenset[str]:
    """Uids of the RoutingPolicies that own the object."""
    return frozenset(str(one.get("uid", "")) for one in _references(found) if one.get("kind") == "RoutingPolicy")


def says_the_same(found: Json, manifest: Json) -> bool:
    """Whether the object carries all that the manifest states; what others added beside it is theirs."""
    wanted = manifest["metadata"]
    data = found.get("data")
    return (
        isinstance(data, dict)
        and data.get(TABLE_KEY) == manifest["data"][TABLE_KEY]
        and wanted["labels"].items() <= _metadata(found, "labels").items()
        and wanted["annotations"].items() <= _metadata(found, "annotations").items()
        and owners_of(found) == owners_of(manifest)
    )


def put_over(found: Json, manifest: Json) -> Json:
    """The whole object as it was read, with all that the manifest states, and no RoutingPolicy that owns it beside."""
    metadata = dict(found["metadata"])
    wanted = manifest["metadata"]
    others = [one for one in _references(found) if one.get("kind") != "RoutingPolicy"]
    metadata["labels"] = {**_metadata(found, "labels"), **wanted["labels"]}
    metadata["annotations"] = {**_metadata(found, "annotations"), **wanted["annotations"]}
    metadata["ownerReferences"] = [*others, *wanted.get("ownerReferences", [])]
    return {**found, **manifest, "metadata": metadata, "data": {**(found.get("data") or {}), **manifest["data"]}}


def _metadata(found: Mapping[str, Any], field: str) -> Mapping[str, str]:
    metadata = found.get("metadata")
    part = metadata.get(field) if isinstance(metadata, dict) else None
    return part if isinstance(part, dict) else {}


def _references(found: Mapping[str, Any]) -> list[Json]:
    metadata = found.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    return [one for one in references if isinstance(one, dict)] if isinstance(references, list) else []
