"""Workloads and Services to drafted InferenceEngines: what is known is filled in, what is not is named.

Not on any path; pure. A draft never states what nobody measured: a capacity is FILL, which every reader of manifests
refuses with the field's name, so that a draft can't be applied by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from headrace_api.base import API_VERSION, HARDWARE_PATTERN, LABEL_PATTERN, MODEL_PATTERN, NAME_PATTERN, PLACE_PATTERN
from headrace_operator.cli.discover_read import Raw, World, items, labels, part, text
from headrace_operator.cli.discover_runtime import Serving, container_ports, serving

FILL: Final = "<fill in>"
MAX_NAME: Final = 63
ACCELERATORS: Final = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
)
_MIG: Final = re.compile(r"nvidia\.com/mig-[\w.]+")
# Node labels that name the accelerator, the most precise first.
PRODUCTS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "gpu.nvidia.com/model",
)
REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_CAPACITY_WORD: Final = "requests/s that one replica carries of your usual mix: take it from a load test of one replica"


class Unknown(NamedTuple):
    """A field that is to be filled in, or may be: its path, and where to get it. needed: without it nothing works."""

    field: str
    word: str
    needed: bool


class Draft(NamedTuple):
    """One engine as a manifest. about: where it was found, a line each."""

    manifest: dict[str, Any]
    about: tuple[str, ...]
    unknown: tuple[Unknown, ...]


class Drafts(NamedTuple):
    """All of them, sorted by namespace and name. looked_at: what was there."""

    engines: tuple[Draft, ...]
    notes: tuple[str, ...]
    looked_at: str


class _Found(NamedTuple):
    """A workload that serves. pod: the template whose pods answer. nodes: labels of the nodes that its pods run on."""

    kind: str
    namespace: str
    name: str
    serving: Serving
    pod: Raw
    labels: Mapping[str, str]
    pods_per_replica: int
    nodes: tuple[Mapping[str, str], ...]


def drafts(world: World) -> Drafts:
    """A draft for each Service's engine; workloads behind the same Service are one engine."""
    found = [entry for kind, raw in world.workloads if (entry := _recognised(kind, raw, world)) is not None]
    found.sort(key=lambda entry: (entry.namespace, entry.name, entry.kind))
    notes: list[str] = []
    taken: set[tuple[str, str]] = set()
    by_service: dict[tuple[str, str, int], _Found] = {}
    declared = set(_declared(world))
    made: list[Draft] = []
    for entry in found:
        service, port = _service(entry, world)
        key = (entry.namespace, service, port)
        if service != FILL and key in by_service:
            first = by_service[key]
            notes.append(
                f"{entry.kind} {entry.namespace}/{entry.name} stands behind the same Service {service} as"
                f" {first.kind} {first.name}: one engine was drafted; where they differ, give each a Service of its own"
            )
            continue
        if (entry.namespace, service) in declared:
            notes.append(f"Service {entry.namespace}/{service} has an InferenceEngine already: none was drafted")
            continue
        by_service[key] = entry
        made.append(_draft(entry, service, port, _name(entry, taken)))
    looked = f"{len(world.workloads)} workloads and {len(world.services)} Services were looked at"
    return Drafts(tuple(made), tuple(notes), looked)


def _declared(world: World) -> Iterator[tuple[str, str]]:
    for engine in world.engines:
        yield text(engine, "metadata", "namespace"), text(engine, "spec", "endpoints", "service", "name")


def _recognised(kind: str, raw: Raw, world: World) -> _Found | None:
    namespace, name = text(raw, "metadata", "namespace"), text(raw, "metadata", "name")
    size = 1
    pod = part(raw, "spec", "template")
    if kind == "LeaderWorkerSet":
        group = part(raw, "spec", "leaderWorkerTemplate")
        pod = part(group, "leaderTemplate") or part(group, "workerTemplate")
        found = group.get("size")
        size = found if isinstance(found, int) and 0 < found <= 4096 else 1
    serves = serving(pod)
    if serves is None or not name:
        return None
    own = labels(pod, "metadata", "labels")
    if kind == "LeaderWorkerSet":
        own |= {LWS_NAME: name, LWS_INDEX: "0"}
    return _Found(kind, namespace, name, serves, pod, own, size, _nodes(namespace, own, world))


def _nodes(namespace: str, own: Mapping[str, str], world: World) -> tuple[Mapping[str, str], ...]:
    wanted = own.items()
    names = {
        text(pod, "spec", "nodeName")
        for pod in world.pods
        if own
        and text(pod, "metadata", "namespace") == namespace
        and wanted <= labels(pod, "metadata", "labels").items()
    }
    return tuple(world.nodes[name] for name in sorted(names) if name in world.nodes)


def _service(entry: _Found, world: World) -> tuple[str, int]:
    """The Service and its port that lead to the serving port; (FILL, 0) where none does, or it can't be told."""
    for service in sorted(world.services, key=_plainest):
        selector = labels(service, "spec", "selector")
        if (
            not selector
            or text(service, "metadata", "namespace") != entry.namespace
            or not selector.items() <= entry.labels.items()
            or not re.fullmatch(LABEL_PATTERN, text(service, "metadata", "name"))
        ):
            continue
        port = _service_port(service, entry)
        if port:
            return text(service, "metadata", "name"), port
    return FILL, 0


def _plainest(service: Raw) -> tuple[bool, bool, str]:
    """Services with an address of their own before headless ones, inner before outer ones."""
    spec = part(service, "spec")
    return (
        spec.get("clusterIP") == "None",
        spec.get("type", "ClusterIP") != "ClusterIP",
        text(service, "metadata", "name"),
    )


def _service_port(service: Raw, entry: _Found) -> int:
    names = container_ports(entry.pod, entry.serving.container)
    candidates: list[int] = []
    for item in items(service, "spec", "ports"):
        ports = part(item)
        port = ports.get("port")
        if not isinstance(port, int) or not 0 < port <= 65535 or ports.get("protocol", "TCP") != "TCP":
            continue
        target = ports.get("targetPort", port)
        if (names.get(target) if isinstance(target, str) else target) == entry.serving.port:
            return port
        candidates.append(port)
    return candidates[0] if len(candidates) == 1 else 0


def _name(entry: _Found, taken: set[tuple[str, str]]) -> str:
    base = entry.name[:MAX_NAME].rstrip("-.")
    base = base if re.fullmatch(NAME_PATTERN, base) else "engine"
    name, number = base, 2
    while (entry.namespace, name) in taken:
        name, number = f"{base[: MAX_NAME - 4].rstrip('-.')}-{number}", number + 1
    taken.add((entry.namespace, name))
    return name


def _draft(entry: _Found, service: str, port: int, name: str) -> Draft:
    unknown: list[Unknown] = []
    spec: dict[str, Any] = {"models": [_model(entry.serving, unknown)]}
    spec["endpoints"] = {"service": {"name": service, "port": port or FILL}}
    if service == FILL:
        word = f"no Service selects these pods' port {entry.serving.port or 'of HTTP'}: make one, or use endpoints.urls"
        unknown.append(Unknown("spec.endpoints.service", word, needed=True))
    _authorised(entry.serving, spec, unknown)
    location = _location(entry, unknown)
    if location:
        spec["location"] = location
    spec["runtime"] = entry.serving.runtime
    hardware = _hardware(entry, unknown)
    if hardware:
        spec["hardware"] = hardware
    if entry.serving.tools:
        spec["capabilities"] = ["tools"]
    if entry.serving.length:
        spec["maxModelLen"] = min(entry.serving.length, 100_000_000)
    else:
        unknown.append(Unknown("spec.maxModelLen", f"{_length_flag(entry.serving)} is not set", needed=False))
    spec["capacity"] = {"perReplica": {"requestsPerSecond": FILL} | _concurrency(entry.serving)}
    unknown.append(Unknown("spec.capacity.perReplica.requestsPerSecond", _CAPACITY_WORD, needed=True))
    about = (
        f"{entry.kind} {entry.namespace}/{entry.name}, container {entry.serving.container}",
        f"image {entry.serving.image}",
    )
    metadata = {"name": name} | ({"namespace": entry.namespace} if entry.namespace else {})
    manifest = {"apiVersion": API_VERSION, "kind": "InferenceEngine", "metadata": metadata, "spec": spec}
    return Draft(manifest, about, tuple(unknown))


def _length_flag(serves: Serving) -> str:
    return {
        "vLLM": "--max-model-len",
        "SGLang": "--context-length",
        "TGI": "--max-total-tokens",
        "TensorRTLLM": "--max_seq_len",
    }[serves.runtime]


def _concurrency(serves: Serving) -> dict[str, int]:
    return {"maxConcurrency": serves.concurrency} if 0 < serves.concurrency <= 1_000_000 else {}


def _model(serves: Serving, unknown: list[Unknown]) -> dict[str, Any]:
    """The model as clients ask for it: what the engine calls it, for it answers to no other name."""
    name = serves.served[0] if serves.served else serves.model
    if not name:
        word = "the command line does not say it: ask the engine, GET /v1/models"
        unknown.append(Unknown("spec.models[0].name", word, needed=True))
        return {"name": FILL}
    if not _fits(MODEL_PATTERN, name, 128):
        word = f"the engine calls it {name!r}, which no client can ask for: give it a --served-model-name"
        unknown.append(Unknown("spec.models[0].name", word, needed=True))
        return {"name": FILL}
    if len(serves.served) > 1:
        others = ", ".join(serves.served[1:])
        unknown.append(Unknown("spec.models[0].name", f"the engine answers to {others} too", needed=False))
    model: dict[str, Any] = {"name": name}
    adapters = [adapter for adapter in serves.adapters if _fits(MODEL_PATTERN, adapter, 128) and adapter != name][:64]
    if adapters:
        model["adapters"] = adapters
    return model


def _fits(pattern: str, value: str, longest: int) -> bool:
    return len(value) <= longest and re.fullmatch(pattern, value) is not None


def _authorised(serves: Serving, spec: dict[str, Any], unknown: list[Unknown]) -> None:
    if serves.key is None:
        return
    name, key = serves.key
    if name and key:
        spec["endpoints"]["auth"] = {"secretRef": {"name": name, "key": key}}
        return
    word = "the engine asks for an API key that stands in no Secret: put it into one and name it here"
    unknown.append(Unknown("spec.endpoints.auth.secretRef", word, needed=False))


def _location(entry: _Found, unknown: list[Unknown]) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, label in (("region", REGION), ("zone", ZONE)):
        place = _common(_label_values(entry, label))
        if place and _fits(PLACE_PATTERN, place, 63):
            found[field] = place
        else:
            word = "its pods run in several" if len(_label_values(entry, label)) > 1 else f"no node says {label}"
            unknown.append(Unknown(f"spec.location.{field}", word, needed=False))
    word = "the name that front-ends of the same cluster have as location.cluster; unset on both means the same"
    unknown.append(Unknown("spec.location.cluster", word, needed=False))
    return found


def _label_values(entry: _Found, label: str) -> set[str]:
    """A label's values: those that the pods are bound to, else those of the nodes that they run on."""
    bound = _bound(entry.pod, label)
    return {bound} if bound else {node[label] for node in entry.nodes if node.get(label)}


def _common(values: Iterable[str]) -> str:
    found = list(values)
    return found[0] if len(found) == 1 else ""


def _bound(pod: Raw, label: str) -> str:
    """The only value of a node's label that a pod template allows."""
    selected = labels(pod, "spec", "nodeSelector").get(label, "")
    if selected:
        return selected
    required = part(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = items(required, "nodeSelectorTerms")
    values = [
        items(rule, "values")
        for term in terms
        for rule in items(term, "matchExpressions")
        if text(rule, "key") == label and text(rule, "operator") == "In"
    ]
    # Terms are alternatives: only one that all of them state binds the pod.
    flat = {value for entry in values for value in entry if isinstance(value, str)}
    return _common(flat) if len(values) == len(terms) > 0 else ""


def _hardware(entry: _Found, unknown: list[Unknown]) -> dict[str, Any]:
    product = next((name for label in PRODUCTS if (name := _common(_label_values(entry, label)))), "")
    count, slices = _accelerators(entry.pod)
    count *= entry.pods_per_replica
    if not count:
        count = entry.serving.parallel
    if slices:
        word = f"it runs on slices ({slices}): name them as one kind, so that like is compared with like"
        unknown.append(Unknown("spec.hardware", word, needed=False))
        return {}
    if not _fits(HARDWARE_PATTERN, product, 64):
        stands = f", count: {count}" if count else ""
        word = f"{{accelerator: …{stands}}}: no node selector or node label says it"
        unknown.append(Unknown("spec.hardware", word, needed=False))
        return {}
    if not 0 < count <= 4096:
        unknown.append(Unknown("spec.hardware.count", "neither limits nor flags say it; 1 is assumed", needed=False))
        return {"accelerator": product}
    return {"accelerator": product, "count": count}


def _accelerators(pod: Raw) -> tuple[int, str]:
    """How many whole accelerators a pod asks for, and the name of the slices if it asks for such."""
    count, slices = 0, ""
    for container in items(pod, "spec", "containers"):
        limits = part(container, "resources", "limits") or part(container, "resources", "requests")
        for resource, amount in limits.items():
            if resource in ACCELERATORS and str(amount).isdecimal() and len(str(amount)) < 5:
                count += int(amount)
            elif _MIG.fullmatch(str(resource)):
                slices = str(resource)
    return count, slices
