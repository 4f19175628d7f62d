"""What all API objects share: bounded strings, metadata, and the struct settings.

Every string, list, map and number that a user can write is bounded here or where it is used, because an unbounded
one breaks the API server's cost budget for CEL rules and can grow a ConfigMap past its limit.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

GROUP: Final = "headrace.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "headrace.dev/v1alpha1"

ObjectName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="A DNS-1123 name.",
    ),
]
LabelName = Annotated[
    str,
    Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", description="A DNS label."),
]
ModelName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/:@+-]*[A-Za-z0-9])?$",
        description="A model's name as clients ask for it.",
    ),
]
Place = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="A region, zone or cluster.",
    ),
]
Capability = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="tools, vision, …",
    ),
]
LabelText = Annotated[str, Meta(max_length=317)]
Percent = Annotated[int, Meta(ge=0, le=100, description="A share in percent.")]
Permille = Annotated[int, Meta(ge=0, le=1000, description="A share in thousandths.")]
HeaderName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        description="An HTTP header's name.",
    ),
]

SCALAR_SET = {"x-kubernetes-list-type": "set"}
ATOMIC = {"x-kubernetes-list-type": "atomic"}
BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything a user writes: camelCase on the wire, unknown fields refused, defaults not written out."""


class Location(Spec, frozen=True, kw_only=True):
    """Where something stands. What is missing is unknown, not everywhere."""

    region: Place | None = None
    zone: Place | None = None
    cluster: Place | None = None


class SecretKey(Spec, frozen=True, kw_only=True):
    """A key of a Secret; the value itself never leaves the Secret."""

    name: ObjectName
    key: Annotated[str, Meta(min_length=1, max_length=253)]


class ConfigMapKey(Spec, frozen=True, kw_only=True):
    """A key of a ConfigMap."""

    name: ObjectName
    key: Annotated[str, Meta(min_length=1, max_length=253)]


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of Kubernetes object metadata that Headrace reads; other fields are ignored."""

    name: ObjectName
    namespace: LabelName = "default"
    uid: str = ""
    generation: int = 1
    creation_timestamp: str = ""
    resource_version: str = ""
    labels: dict[LabelText, LabelText] = {}
    annotations: dict[LabelText, str] = {}


def resource_id(metadata: Metadata) -> str:
    """The id used in tables, snapshots and metrics: ``namespace/name``."""
    return f"{metadata.namespace}/{metadata.name}"
