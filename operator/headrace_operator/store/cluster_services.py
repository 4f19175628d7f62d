"""Who is behind the Services that engines and routers name; of all others nothing is kept.

On the routing-weight path. A cluster has many more EndpointSlices than those of engines. A Service that somebody begins
to name is read once (``give``); from then on its events are kept, those of others are dropped. Plain values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from headrace_api.endpoint_slices import SERVICE_LABEL, service_of
from headrace_operator.store.cluster_index import Key, KindIndex

Json = Mapping[str, Any]


class Backed(NamedTuple):
    """A Service (None: there is none) and its EndpointSlices, each cut to what is read."""

    service: Json | None
    slices: tuple[Json, ...]


class Backing:
    """EndpointSlices and Services of those that are named."""

    def __init__(self) -> None:
        self._read: set[Key] = set()
        self._asked: set[Key] = set()
        self.slices: KindIndex[Json] = KindIndex(lambda item, _: self._kept_slice(item))
        self.services: KindIndex[Json] = KindIndex(lambda item, _: self._kept_service(item))

    def unread(self, wanted: Collection[Key]) -> tuple[Key, ...]:
        """Those wanted that were never read. Their events are kept from now on: one may outrun the reading."""
        found = set(wanted) - self._read
        self._asked |= found
        return tuple(sorted(found))

    def give(self, service: Key, found: Json | None, slices: Sequence[Json]) -> bool:
        """Take a Service with all its slices as they are now; gives whether anything changed."""
        changed = service not in self._read
        self._read.add(service)
        self._asked.discard(service)
        if found is not None:
            changed |= self.services.upsert(found)
        for item in slices:
            changed |= self.slices.upsert(item)
        return changed

    def keep_only(self, wanted: Collection[Key]) -> None:
        """Forget Services that nobody names any more."""
        if not self._read | self._asked <= set(wanted):
            self._read &= set(wanted)
            self._asked &= set(wanted)
            self.slices.drop_unless(lambda _, item: self._is_kept(_service_key(item)))
            self.services.drop_unless(lambda key, _: self._is_kept(key))

    def all(self) -> dict[Key, Backed]:
        """What stands behind each Service that was read."""
        slices: dict[Key, list[Json]] = {key: [] for key in self._read}
        for _, item in self.slices:
            if (key := _service_key(item)) in slices:
                slices[key].append(item)
        return {key: Backed(self.services.get(key), tuple(found)) for key, found in slices.items()}

    def _is_kept(self, service: Key) -> bool:
        return service in self._read or service in self._asked

    def _kept_slice(self, item: Json) -> Json | None:
        return read_slice(item) if self._is_kept(_service_key(item)) else None

    def _kept_service(self, item: Json) -> Json | None:
        metadata = item.get("metadata") or {}
        key = Key(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        return read_service(item) if self._is_kept(key) else None


def read_slice(item: Json) -> Json:
    """The parts of an EndpointSlice that tell who is behind its Service."""
    metadata = item.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    labels = given.get("labels")
    name = labels.get(SERVICE_LABEL) if isinstance(labels, Mapping) else None
    return {
        "metadata": {"namespace": given.get("namespace", ""), "labels": {SERVICE_LABEL: name}},
        "endpoints": item.get("endpoints"),
        "ports": item.get("ports"),
    }


def read_service(item: Json) -> Json:
    """The ports of a Service."""
    spec = item.get("spec")
    return {"spec": {"ports": spec.get("ports") if isinstance(spec, Mapping) else None}}


def _service_key(item: Json) -> Key:
    namespace, _, name = service_of(item).partition("/")
    return Key(namespace, name)
