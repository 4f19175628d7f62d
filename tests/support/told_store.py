"""A cluster store that is told of objects as watches and lists tell it, and objects to tell it of."""

from __future__ import annotations

import copy
from typing import Any

from headrace_api.endpoint_slices import SERVICE_LABEL
from headrace_operator.store.cluster import ClusterStore, Kind
from headrace_operator.store.resources import Resources
from headrace_operator.store.topology import REGION_LABEL, ZONE_LABEL
from support.engine_manifests import engine_dict

Json = dict[str, Any]
KINDS: tuple[Kind, ...] = ("InferenceEngine", "RoutingPolicy", "EndpointSlice", "Service", "Node")


class Server:
    """Objects with uids and versions, told to the store as a watch tells them."""

    def __init__(self, *kinds: Kind) -> None:
        self.now = 0.0
        self.store = ClusterStore(lambda: self.now)
        self.objects: dict[tuple[Kind, str, str], Json] = {}
        self.version = 0
        self.store.expect(kinds or KINDS)

    def apply(self, manifest: Json, *, manager: str = "kubectl-client-side-apply", told: bool = True) -> bool:
        kind: Kind = manifest["kind"]
        metadata = manifest["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        known = self.objects.get(key)
        self.version += 1
        generation = known["metadata"]["generation"] if known else 0
        generation += known is None or known.get("spec") != manifest.get("spec")
        manifest = copy.deepcopy(manifest)
        manifest["metadata"] |= {
            "uid": known["metadata"]["uid"] if known else f"uid-{self.version}",
            "resourceVersion": str(self.version),
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "time": f"2026-01-01T00:00:{self.version:02d}Z",
                    "fieldsV1": {"f:spec": {"f:models": {}}},
                }
            ],
        }
        self.objects[key] = manifest
        return told and self.store.upsert(kind, manifest)

    def delete(self, kind: Kind, name: str, *, told: bool = True) -> None:
        self.version += 1
        gone = self.objects.pop((kind, "inf", name))
        if told:
            self.store.delete(kind, gone)

    def compare(self, *kinds: Kind) -> None:
        for kind in kinds or KINDS:
            items = [{"metadata": one["metadata"]} for (its, _, _), one in self.objects.items() if its == kind]
            self.store.compare(kind, items, str(self.version))

    def look(self) -> Resources:
        return self.store.look(thorough=False)


def engine_on_service(name: str, service: str, port: int = 8000, **spec: Any) -> Json:
    return engine_dict(name, [], **(spec | {"endpoints": {"service": {"name": service, "port": port}}}))


def slice_of(service: str, *endpoints: Json, name: str = "", ports: list[Json] | None = None) -> Json:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name or f"{service}-1", "namespace": "inf", "labels": {SERVICE_LABEL: service}},
        "ports": ports if ports is not None else [{"name": "http", "port": 8000}],
        "endpoints": list(endpoints),
    }


def pod(address: str, *, ready: bool = True, **more: Any) -> Json:
    return {"addresses": [address], "conditions": {"ready": ready}, **more}


def node(name: str, region: str, zone: str) -> Json:
    labels = {REGION_LABEL: region, ZONE_LABEL: zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def service_of(service: str, **port: Any) -> Json:
    return {"kind": "Service", "metadata": {"name": service, "namespace": "inf"}, "spec": {"ports": [port]}}
