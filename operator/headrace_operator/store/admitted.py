"""One object of an API server as a typed resource, or why it can't be one.

On the routing-weight path. The API server has checked it by the CRD of its day; stored objects may be older than that,
and some rules are ours alone. So the walker that judges manifests judges here too (case CRD-01).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from headrace_api.base import GROUP, Metadata
from headrace_operator.kube.editor import cut_entry
from headrace_operator.store.faults import field_name
from headrace_operator.store.manifests import KINDS, own_faults, without_nulls
from headrace_operator.store.resources import Resource

MAX_TOLD: Final = 3  # faults of one resource in one sentence
_READ: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Metadata)) - {
    "resourceVersion",
    "editor",
}


class Admitted(NamedTuple):
    """The resource, or None and the faults in one sentence; its metadata either way, where that can be read."""

    resource: Resource | None
    metadata: Metadata | None
    fault: str


def read_object(kind: str, value: Mapping[str, Any]) -> Admitted:
    """Judge one object, given as parsed JSON; never raises for content."""
    raw = without_nulls({"apiVersion": value.get("apiVersion"), "kind": kind, "spec": value.get("spec")})
    raw["metadata"] = _read_metadata(value.get("metadata"))
    read = _metadata(raw["metadata"])
    found = list(islice(own_faults(kind, raw, raw), MAX_TOLD + 1))
    if found:
        told = [": ".join(part for part in (field_name(one.path), one.message) if part) for one in found[:MAX_TOLD]]
        return Admitted(None, read, "; ".join(told) + ("; and more" if len(found) > MAX_TOLD else ""))
    try:
        return Admitted(msgspec.convert(raw, KINDS[kind][0]), read, "")
    except msgspec.ValidationError as error:  # the schema and the types disagree: never silently
        return Admitted(None, read, f"does not fit its type: {error}")


def read_books(value: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an object's metadata that tells whether and by whom it was edited."""
    metadata = value.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    managed = given.get("managedFields")
    return {
        **{name: given.get(name) for name in ("uid", "generation", "labels")},
        "annotations": _ours(given.get("annotations")),
        "managedFields": [
            cut_entry(one)
            for one in (managed if isinstance(managed, list) else ())
            if isinstance(one, dict) and not one.get("subresource")
        ],
    }


def same_edit(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether nothing that is read differs: each change of a spec has a generation of its own."""
    known = isinstance(now.get("generation"), int)
    return known and all(now[name] == before[name] for name in ("uid", "generation", "labels", "annotations"))


def _read_metadata(metadata: object) -> dict[str, Any]:
    """What is read of an object's metadata; what moves with every write, or is others' annotations, is no news."""
    given = metadata if isinstance(metadata, Mapping) else {}
    raw: dict[str, Any] = without_nulls({name: field for name, field in given.items() if name in _READ})
    if "annotations" in raw:
        raw["annotations"] = _ours(raw["annotations"])
    return raw


def _ours(annotations: Any) -> Any:
    """Annotations that mean something here; what is no mapping stays, to be found fault with."""
    if not isinstance(annotations, dict):
        return annotations
    return {name: text for name, text in annotations.items() if isinstance(name, str) and name.startswith(f"{GROUP}/")}


def _metadata(raw: dict[str, Any]) -> Metadata | None:
    try:
        return msgspec.convert(raw, Metadata)
    except msgspec.ValidationError:
        return None
