"""What every store gives: all resources in force now, what is wrong with the others, and whom Services mean.

On the routing-weight path. Values only; where they come from (a directory, an API server) is the stores' matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headrace_api.base import Metadata, resource_id
from headrace_api.endpoint_slices import Endpoint
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy

Resource = InferenceEngine | RoutingPolicy


class ResourceName(NamedTuple):
    """Kind and ``namespace/name``."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Resources:
    """All resources in force.

    faults: what is wrong, one line each. refused: why a resource's latest edit is not in force. rejected: of those, the
    metadata as it stands at the API server now, also where no earlier spec is in force. complete: nothing is missing
    for another reason than that it was deleted. services: endpoints by ``namespace/service:port``; a Service without
    an entry is not known, which is not the same as empty. namespaces: where resources were looked for (none:
    everywhere); what is missing elsewhere may well stand.
    """

    engines: tuple[InferenceEngine, ...] = ()
    policies: tuple[RoutingPolicy, ...] = ()
    faults: tuple[str, ...] = ()
    refused: Mapping[ResourceName, str] = field(default_factory=dict)
    rejected: Mapping[ResourceName, Metadata] = field(default_factory=dict)
    complete: bool = False
    services: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    namespaces: frozenset[str] = frozenset()

    def covers(self, namespace: str) -> bool:
        """Whether resources of that namespace were looked for."""
        return not self.namespaces or namespace in self.namespaces

    def all(self) -> tuple[Resource, ...]:
        """Engines and policies."""
        return (*self.engines, *self.policies)


def name_of(resource: Resource) -> ResourceName:
    """Kind and id of a resource."""
    return ResourceName(resource.kind, resource_id(resource.metadata))


def service_key(namespace: str, service: str, port: int) -> str:
    """The key of ``Resources.services``."""
    return f"{namespace}/{service}:{port}"


def spec_json(spec: msgspec.Struct) -> bytes:
    """The spec in one form that can be compared, also with one that was read back from YAML."""
    return msgspec.json.encode(spec, order="deterministic")
