"""Where an engine stands, when its manifest doesn't say: what its Service's endpoints and their nodes say together.

On the routing-weight path; pure. An EndpointSlice gives each endpoint's zone and node, a Node's labels region and zone.
Only what all ready endpoints agree on counts, and nothing that the manifest states is overruled. Without permission to
read Nodes (an installation for some namespaces) the zone alone may be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace_api.base import Location
from headrace_api.endpoint_slices import Endpoint
from headrace_api.engine import InferenceEngine

REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"


class NodePlace(NamedTuple):
    """Region and zone of a node; empty where it has no such label."""

    region: str
    zone: str


NOWHERE: Final = NodePlace("", "")


def node_place(node: Mapping[str, Any]) -> NodePlace:
    """What a Node's labels say; a label that can't be a place is none."""
    metadata = node.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    if not isinstance(labels, Mapping):
        return NOWHERE
    return NodePlace(_place(labels.get(REGION_LABEL), "region"), _place(labels.get(ZONE_LABEL), "zone"))


def located(
    engine: InferenceEngine, endpoints: Sequence[Endpoint] | None, nodes: Mapping[str, NodePlace]
) -> InferenceEngine:
    """The engine with region and zone filled in where it states none; the same object where nothing is to fill in.

    endpoints: of its Service (None: not known). nodes: places by node name; none where they can't be read.
    """
    stated = engine.spec.location
    ready = [one for one in endpoints or () if one.ready]
    if not ready or (stated.region is not None and stated.zone is not None):
        return engine
    region = _agreed(nodes.get(one.node, NOWHERE).region for one in ready)
    zone = _agreed(_place(one.zone, "zone") or nodes.get(one.node, NOWHERE).zone for one in ready)
    # Where manifest and nodes differ on the one, what the nodes say of the other belongs to another place.
    if stated.region is not None and region not in ("", stated.region):
        zone = ""
    if stated.zone is not None and zone not in ("", stated.zone):
        region = ""
    found = Location(region=stated.region or region or None, zone=stated.zone or zone or None, cluster=stated.cluster)
    if found == stated:
        return engine
    return msgspec.structs.replace(engine, spec=msgspec.structs.replace(engine.spec, location=found))


def _agreed(places: Iterable[str]) -> str:
    """The one place that all name; empty where they differ, or one of them names none."""
    named = set(places)
    return named.pop() if len(named) == 1 else ""


def _place(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        return ""
    try:
        msgspec.convert({field: value}, Location)
    except msgspec.ValidationError:
        return ""
    return value
