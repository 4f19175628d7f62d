"""An API server as the place where resources live: an index that watches feed, and one look at all of it.

On the routing-weight path. Level-triggered like the directory store: ``look`` gives what holds now. A resource that the
API server admits and we refuse keeps its last valid spec. Nothing counts as deleted before every kind was listed once,
nor while a watch is broken; what is not readable is unknown. Thread-safe: watches feed it from their own thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final, Literal, get_args

import msgspec

from headrace_api.base import Metadata, resource_id
from headrace_api.endpoint_slices import Endpoint, read_endpoints
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_operator.kube.editor import editor_of
from headrace_operator.store.admitted import read_books, read_object, same_edit
from headrace_operator.store.cluster_index import Compared, Key, KindIndex
from headrace_operator.store.cluster_services import Backed, Backing
from headrace_operator.store.resources import Resource, ResourceName, Resources, service_key
from headrace_operator.store.topology import NodePlace, located, node_place

Kind = Literal["InferenceEngine", "RoutingPolicy", "EndpointSlice", "Service", "Node"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Json = Mapping[str, Any]
SERVICE_SECONDS: Final = 1.0
"""How long news waits for Services that are named in it; one that can't be read stops nobody for longer."""


class ServicePort(msgspec.Struct, frozen=True, order=True):
    """A port of a Service that someone names."""

    namespace: str
    service: str
    port: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """One custom resource. resource: its last valid form under its latest metadata, if it ever had one here.

    books: who wrote it when, by which the next edit is told apart; no news by itself.
    """

    resource: Resource | None
    metadata: Metadata | None
    fault: str
    editor: str
    books: Json = field(compare=False)


class ClusterStore:
    """Fed by watches (upsert, delete) and lists (compare); read by the loop (look)."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """clock: steady seconds."""
        self._clock = clock
        self._lock = threading.RLock()
        self._resources: dict[str, KindIndex[_Entry]] = {
            kind: KindIndex(_reader(kind)) for kind in ("InferenceEngine", "RoutingPolicy")
        }
        self._backing = Backing()
        self._nodes: KindIndex[NodePlace] = KindIndex(lambda item, _: node_place(item))
        self._locations: dict[str, InferenceEngine] = {}
        self._watched: frozenset[Kind] = frozenset()
        self._broken: dict[Kind, str] = {}
        self._named: frozenset[ServicePort] = frozenset()
        self._namespaces: frozenset[str] = frozenset()
        self._alive_at = self._heard_at = clock()
        self._changes = 1
        self._unread_since: float | None = None
        self._looked = (0, Resources())
        self._ports_known: tuple[int, set[ServicePort]] = (0, set())

    def expect(self, kinds: Iterable[Kind], named: Iterable[ServicePort] = (), namespaces: Iterable[str] = ()) -> None:
        """Watches begin: of these kinds, in these namespaces (none: all); named: Services of the configuration."""
        with self._lock:
            for kind in KINDS:
                self._index(kind).begin()
            self._watched, self._named, self._namespaces = frozenset(kinds), frozenset(named), frozenset(namespaces)
            self._changes += 1

    def upsert(self, kind: Kind, item: Json) -> bool:
        """Take an object as a watch or a list gives it; gives whether anything that matters changed."""
        with self._lock:
            self._alive_at = self._heard_at = self._clock()
            return self._noted(self._index(kind).upsert(item))

    def delete(self, kind: Kind, item: Json) -> bool:
        """Take a deletion that a watch tells."""
        with self._lock:
            self._alive_at = self._heard_at = self._clock()
            return self._noted(self._index(kind).delete(item))

    def compare(self, kind: Kind, listed: Sequence[Json], version: str) -> Compared:
        """Hold names and versions of a full list (whose resourceVersion is ``version``) against what watches gave."""
        with self._lock:
            now = self._clock()
            index = self._index(kind)
            first = index.verified_at is None
            found = index.compare(
                listed, version, now, partial=kind in ("EndpointSlice", "Service"), heard_at=self._heard_at
            )
            if found.broken:
                self._break(kind, "the watch did not tell what a list shows")
            elif found.settled:
                self._alive_at = now
                if self._broken.pop(kind, None) is not None or first:
                    self._changes += 1
            self._noted(found.changed)
            return found

    def broken(self, kind: Kind, why: str) -> None:
        """Something can't be watched now: nothing missing counts as deleted until a list says so again."""
        with self._lock:
            self._break(kind, why)

    def _break(self, kind: Kind, why: str) -> None:
        if self._broken.get(kind) != why:
            self._broken[kind] = why
            self._changes += 1

    def _noted(self, changed: bool) -> bool:
        self._changes += changed
        return changed

    def _index(self, kind: Kind) -> KindIndex[Any]:
        if kind == "Node":
            return self._nodes
        if kind == "EndpointSlice":
            return self._backing.slices
        return self._backing.services if kind == "Service" else self._resources[kind]

    @property
    def age(self) -> float:
        """Seconds since a watch was last seen alive: it told something, or a list showed nothing that it hadn't."""
        return self._clock() - self._alive_at

    @property
    def missing(self) -> tuple[str, ...]:
        """Kinds that were not listed whole yet, with the reason where there is one."""
        with self._lock:
            return tuple(
                f"{kind}: {self._broken[kind]}" if kind in self._broken else kind
                for kind in KINDS
                if kind in self._watched and self._index(kind).verified_at is None
            )

    @property
    def ready(self) -> bool:
        """Whether every watched kind was listed whole once, and every named Service was asked for."""
        with self._lock:
            return bool(self._watched) and not self.missing and not self.unread()

    def unread(self) -> tuple[Key, ...]:
        """Services that someone names and whose endpoints were never read; whoever reads them calls ``give``."""
        with self._lock:
            return self._backing.unread({Key(one.namespace, one.service) for one in self._ports()})

    def give(self, service: Key, found: Json | None, slices: Sequence[Json]) -> None:
        """A Service (None: there is none) and its EndpointSlices, read one by one."""
        with self._lock:
            self._noted(self._backing.give(service, found, slices))

    def look(self, *, thorough: bool) -> Resources:  # noqa: ARG002  the directory's stores compare contents
        """The resources now; the same object while nothing changed, or what changed waits for a Service to be read."""
        with self._lock:
            changes, known = self._looked
            if changes != self._changes and not (changes and self._waits()):
                known = self._composed()
                self._looked = (self._changes, known)
            return known

    def _waits(self) -> bool:
        """Whether somebody just began to name a Service: who is behind it is read at once, and decided on then.

        Else an engine's first table would be made of the replicas that it might have.
        """
        if not self.unread():
            self._unread_since = None
            return False
        if self._unread_since is None:
            self._unread_since = self._clock()
        return self._clock() - self._unread_since < SERVICE_SECONDS

    def _composed(self) -> Resources:
        entries = {
            ResourceName(kind, f"{key.namespace}/{key.name}"): entry
            for kind, index in self._resources.items()
            for key, entry in index
        }
        ports = self._ports()
        self._backing.keep_only({Key(one.namespace, one.service) for one in ports})
        backed = self._backing.all()
        services = {
            service_key(one.namespace, one.service, one.port): _endpoints(one, found)
            for one in sorted(ports)
            if (found := backed.get(Key(one.namespace, one.service))) is not None
        }
        resources = [entry.resource for entry in entries.values() if entry.resource is not None]
        refused = {name: entry.fault for name, entry in entries.items() if entry.fault}
        return Resources(
            engines=self._located([one for one in resources if isinstance(one, InferenceEngine)], services),
            policies=tuple(one for one in resources if isinstance(one, RoutingPolicy)),
            faults=(
                *(f"{name.kind} {name.id}: {fault}" for name, fault in refused.items()),
                *(f"{kind}s can't be followed: {why}" for kind, why in sorted(self._broken.items())),
            ),
            refused=refused,
            rejected={
                name: entry.metadata for name, entry in entries.items() if entry.fault and entry.metadata is not None
            },
            complete=self.ready and not self._broken,
            services=services,
            namespaces=self._namespaces,
        )

    def _ports(self) -> set[ServicePort]:
        """Every port of a Service that an engine or the configuration names; asked for several times a second."""
        changes, known = self._ports_known
        if changes == self._changes:
            return known
        found = set(self._named)
        for _, entry in self._resources["InferenceEngine"]:
            if isinstance(entry.resource, InferenceEngine) and entry.resource.spec.endpoints.service is not None:
                service = entry.resource.spec.endpoints.service
                found.add(ServicePort(entry.resource.metadata.namespace, service.name, service.port))
        self._ports_known = (self._changes, found)
        return found

    def _located(
        self, engines: list[InferenceEngine], services: Mapping[str, tuple[Endpoint, ...]]
    ) -> tuple[InferenceEngine, ...]:
        nodes = {key.name: place for key, place in self._nodes}
        found = {resource_id(engine.metadata): self._placed(engine, services, nodes) for engine in engines}
        self._locations = found
        return tuple(found.values())

    def _placed(
        self,
        engine: InferenceEngine,
        services: Mapping[str, tuple[Endpoint, ...]],
        nodes: Mapping[str, NodePlace],
    ) -> InferenceEngine:
        service = engine.spec.endpoints.service
        if service is None:
            return engine
        endpoints = services.get(service_key(engine.metadata.namespace, service.name, service.port))
        last = self._locations.get(resource_id(engine.metadata))
        if last is not None and not any(one.ready for one in endpoints or ()):
            # An engine whose last pod goes stands where it stood, or a lost pod would look like an edit.
            return _moved(engine, last)
        return located(engine, endpoints, nodes)


def _endpoints(one: ServicePort, found: Backed) -> tuple[Endpoint, ...]:
    """Who is behind the port; of a Service that isn't there, or has no endpoints, that is nobody."""
    return read_endpoints(found.slices, one.port, found.service)


def _moved(engine: InferenceEngine, last: InferenceEngine) -> InferenceEngine:
    """The engine where it stood last, as far as it states nothing else now."""
    stated, before = engine.spec.location, last.spec.location
    if stated.cluster != before.cluster:
        return engine
    location = msgspec.structs.replace(stated, region=stated.region or before.region, zone=stated.zone or before.zone)
    if stated.region not in (None, before.region) or stated.zone not in (None, before.zone) or location == stated:
        return engine
    return msgspec.structs.replace(engine, spec=msgspec.structs.replace(engine.spec, location=location))


def _reader(kind: str) -> Callable[[Json, _Entry | None], _Entry]:
    def read(item: Json, last: _Entry | None) -> _Entry:
        books = read_books(item)
        if last is not None and books["uid"] != last.books["uid"]:
            last = None  # what was made anew under the name is not an edit of what was deleted
        if last is not None and same_edit(books, last.books):
            return replace(last, books=books)
        admitted = read_object(kind, item)
        editor = editor_of(books, last.books, last.editor) if last is not None else editor_of(books)
        metadata = admitted.metadata and msgspec.structs.replace(admitted.metadata, editor=editor)
        resource = admitted.resource or (last.resource if last is not None else None)
        if resource is not None and metadata is not None:
            resource = msgspec.structs.replace(resource, metadata=metadata)
        return _Entry(resource, metadata, admitted.fault, editor, books)

    return read
