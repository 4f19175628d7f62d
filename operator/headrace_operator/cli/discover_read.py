"""What ``discover`` reads of a cluster: workloads, Services, pods, nodes and the engines that are declared already.

Not on any path; reads only. Objects come as the API server has them, of any version and of any make: whoever reads them
uses ``part`` and ``text``, which take what is not there, or not of the kind expected, for absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace_api.commands import EnvironmentFailed
from headrace_operator.cli.cluster_access import failed
from headrace_operator.kube.client import KubeClient, KubeFault

Raw = Mapping[str, Any]
# (kind, API group's path, plural, name in a Role); workloads first.
WORKLOADS: Final = (
    ("Deployment", "/apis/apps/v1", "deployments", "deployments.apps"),
    ("StatefulSet", "/apis/apps/v1", "statefulsets", "statefulsets.apps"),
    (
        "LeaderWorkerSet",
        "/apis/leaderworkerset.x-k8s.io/v1",
        "leaderworkersets",
        "leaderworkersets.leaderworkerset.x-k8s.io",
    ),
)


class World(NamedTuple):
    """Raw objects. workloads: (kind, object). nodes: labels by name. notes: what could not be read."""

    workloads: tuple[tuple[str, Raw], ...]
    services: tuple[Raw, ...]
    pods: tuple[Raw, ...]
    nodes: Mapping[str, Mapping[str, str]]
    engines: tuple[Raw, ...]
    notes: tuple[str, ...]


def read_world(client: KubeClient, namespace: str) -> World:
    """Everything that ``discover`` looks at, of one namespace or ("") of all.

    Raises:
        EnvironmentFailed: no kind of workload may be read, or nothing answers.
    """
    notes: list[str] = []
    workloads: list[tuple[str, Raw]] = []
    refused: list[EnvironmentFailed] = []
    for kind, group, plural, resource in WORKLOADS:
        try:
            workloads += [(kind, item) for item in _items(client, group, plural, namespace)]
        except KubeFault as fault:
            if fault.missing:
                continue
            refused.append(failed(fault, f"list {plural}", "list", resource, namespace))
            notes.append(str(refused[-1]))
    if refused and not workloads:
        raise refused[0]

    def also(group: str, plural: str, scope: str, without: str) -> tuple[Raw, ...]:
        try:
            return tuple(_items(client, group, plural, scope))
        except KubeFault as fault:
            if not fault.missing:
                notes.append(f"{plural} can't be listed ({fault.message}): {without}")
            return ()

    nodes = also("/api/v1", "nodes", "", "accelerators and places come from node selectors alone")
    return World(
        workloads=tuple(workloads),
        services=also("/api/v1", "services", namespace, "engines' Services are to be filled in"),
        pods=also("/api/v1", "pods", namespace, "where engines run is not known"),
        nodes={text(node, "metadata", "name"): labels(node, "metadata", "labels") for node in nodes},
        engines=also("/apis/headrace.dev/v1alpha1", "inferenceengines", namespace, "some may be declared already"),
        notes=tuple(notes),
    )


def _items(client: KubeClient, group: str, plural: str, namespace: str) -> list[Raw]:
    path = f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"
    found = client.list(path).get("items")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def part(value: Any, *path: str) -> Raw:
    """The mapping at a path; empty where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: Any, *path: str) -> list[Any]:
    """The list at a path; empty where there is none."""
    found = part(value, *path[:-1]).get(path[-1]) if path else value
    return found if isinstance(found, list) else []


def text(value: Any, *path: str) -> str:
    """The text or number at a path, as text; empty where there is none."""
    found = part(value, *path[:-1]).get(path[-1])
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""


def labels(value: Any, *path: str) -> dict[str, str]:
    """The labels at a path, those that are text."""
    return {str(key): found for key, found in part(value, *path).items() if isinstance(found, str)}
