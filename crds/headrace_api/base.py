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

# Policies' names become label values, engines' names parts of one-line sentences: both need names of this length.
MAX_RESOURCE_NAME: Final = 63
MAX_EDITOR: Final = 84

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
MODEL_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9._/:@+-]*[A-Za-z0-9])?$"
PLACE_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
HEADER_PATTERN: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
KEY_PATTERN: Final = r"^[A-Za-z0-9._-]+$"
LABEL_KEY_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN: Final = r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$"
# RE2 and Python agree on these; the manifests' reader has words for each.
IDENTIFIER_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
HOST_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$"
HARDWARE_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9 ._/+-]*[A-Za-z0-9])?$"
PATH_PATTERN: Final = r"^(/[A-Za-z0-9_-]+)+$"

ObjectName = Annotated[
    str,
    Meta(min_length=1, max_length=253, pattern=NAME_PATTERN, description="A Kubernetes object's name."),
]
LabelName = Annotated[
    str,
    Meta(min_length=1, max_length=63, pattern=LABEL_PATTERN, description="A DNS label."),
]
ModelName = Annotated[
    str,
    Meta(min_length=1, max_length=128, pattern=MODEL_PATTERN, description="A model's name as clients ask for it."),
]
Place = Annotated[
    str,
    Meta(min_length=1, max_length=63, pattern=PLACE_PATTERN, description="A region, zone or cluster."),
]
Capability = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        pattern=LABEL_PATTERN,
        description="What a request may need of an engine: tools, vision, …",
    ),
]
LabelKey = Annotated[
    str, Meta(min_length=1, max_length=317, pattern=LABEL_KEY_PATTERN, description="A Kubernetes label's key.")
]
LabelValue = Annotated[str, Meta(max_length=63, pattern=LABEL_VALUE_PATTERN, description="A Kubernetes label's value.")]
Percent = Annotated[int, Meta(ge=0, le=100, description="A share in percent.")]
Permille = Annotated[int, Meta(ge=0, le=1000, description="A share in thousandths.")]
Tokens = Annotated[int, Meta(ge=0, le=100_000_000, description="A number of tokens.")]
HeaderName = Annotated[
    str,
    Meta(min_length=1, max_length=64, pattern=HEADER_PATTERN, description="An HTTP header's name."),
]

SCALAR_SET = {"x-kubernetes-list-type": "set"}
ATOMIC = {"x-kubernetes-list-type": "atomic"}
BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything a user writes: camelCase on the wire, unknown fields refused, defaults not written out."""


class Location(Spec, frozen=True, kw_only=True):
    """Where something stands. What is missing is unknown, not everywhere."""

    region: Annotated[Place, Meta(description="A region; round trips are usually listed between regions.")] | None = (
        None
    )
    zone: Annotated[Place, Meta(description="A zone of the region.")] | None = None
    cluster: (
        Annotated[
            Place,
            Meta(description="The Kubernetes cluster. A Service is usable only from its own cluster."),
        ]
        | None
    ) = None


class SecretKey(Spec, frozen=True, kw_only=True):
    """A key of a Secret; the value itself never leaves the Secret."""

    name: Annotated[ObjectName, Meta(description="The Secret's name, in the resource's namespace.")]
    key: Annotated[
        str, Meta(min_length=1, max_length=253, pattern=KEY_PATTERN, description="The key inside the Secret.")
    ]


class ConfigMapKey(Spec, frozen=True, kw_only=True):
    """A key of a ConfigMap."""

    name: Annotated[ObjectName, Meta(description="The ConfigMap's name, in the resource's namespace.")]
    key: Annotated[
        str, Meta(min_length=1, max_length=253, pattern=KEY_PATTERN, description="The key inside the ConfigMap.")
    ]


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of Kubernetes object metadata that Headrace reads; other fields are ignored."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_RESOURCE_NAME,
            pattern=NAME_PATTERN,
            description="The resource's name, at most 63 characters.",
        ),
    ]
    namespace: Annotated[LabelName, Meta(description="The resource's namespace.")] = "default"
    uid: Annotated[str, Meta(max_length=128)] = ""
    generation: Annotated[int, Meta(ge=0, le=2**53)] = 1
    creation_timestamp: Annotated[str, Meta(max_length=64)] = ""
    resource_version: Annotated[str, Meta(max_length=128)] = ""
    labels: Annotated[dict[LabelKey, LabelValue], Meta(max_length=256)] = {}
    annotations: Annotated[dict[LabelKey, Annotated[str, Meta(max_length=262_144)]], Meta(max_length=256)] = {}
    # Not the API server's: who edited the spec or the labels last, as the store makes out ("kubectl edit").
    editor: Annotated[str, Meta(max_length=MAX_EDITOR)] = ""


def resource_id(metadata: Metadata) -> str:
    """The id used in tables, snapshots and metrics: ``namespace/name``."""
    return f"{metadata.namespace}/{metadata.name}"
