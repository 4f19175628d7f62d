"""Tables on one API server: written under the resourceVersion that this term read, and mended when touched.

On the routing-weight path. Every write names the version that this term last saw, so that nobody's late write (a paused
ex-leader's) lands over a newer one, nor ours over theirs. A conflict is read again and judged: a newer term ends all
writing, another's ConfigMap is left alone, and ours is written again over what people made of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Final

from headrace_api.names import LABEL_POLICY_UID
from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.tables.encode import stamped
from headrace_operator.kube.client import Json, KubeClient, KubeFault, NotLeading
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.objects import (
    OURS,
    Seen,
    Spot,
    labelled_ours,
    put_over,
    says_the_same,
    seen_of,
    table_manifest,
)
from headrace_operator.publisher.cluster.refused import RETRY_SECONDS, SILENT, TAKEN, not_ours, refusal_of, taken
from headrace_operator.publisher.places import Place, Refusal, TableKey, key_of

CHECK_SECONDS: Final = 15.0
"""How often what stands is compared with what was written."""
PAGE: Final = 20  # tables a page of a list: each may have a megabyte
ATTEMPTS: Final = 4


class TableTarget:
    """The tables of one API server. Thread-safe."""

    def __init__(
        self,
        cluster: str,
        client: Callable[[], KubeClient],
        pool: Pool,
        *,
        term: int,
        owned: bool,
        watched: Sequence[str] = (),
        known: Callable[[Spot, str], bool] = lambda _spot, _uid: True,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """owned: policies are in this cluster. watched: namespaces (none: all).

        known: whether a ConfigMap with our label, by its place and policy's uid, was made by this installation.
        """
        self.cluster = cluster
        self._client = client
        self._pool = pool
        self._term = term
        self._owned = owned
        self._watched = tuple(watched)
        self._known = known
        self._steady = steady
        self._lock = RLock()
        self._seen: dict[Spot, Seen] = {}
        self._spots: dict[TableKey, Spot] = {}
        self._owners: dict[Spot, TableKey] = {}
        self._tables: dict[TableKey, RoutingTable] = {}
        self._placed: dict[TableKey, Place] = {}
        self._barred_until: dict[TableKey, float] = {}
        self._checked = -float("inf")
        self.refusals: dict[TableKey, Refusal] = {}
        self.silent: Refusal | None = None
        """Why the last publication had no answer, if so."""

    # What stands

    def read_back(self) -> tuple[str, ...]:
        """Take up what stands; gives what is wrong with ConfigMaps that carry our label, one line each.

        Raises:
            KubeFault: the list can't be had.
        """
        seen: dict[Spot, Seen] = {}
        for path in self.collections("/api/v1", "configmaps"):
            for found in self._client().every(path, labels=OURS, page=PAGE):
                spot, one = _spot(found), seen_of(found)
                if self._known(spot, one.policy):
                    seen[spot] = one
        faults = [
            f"{self.cluster}: ConfigMap {spot} has no table that can be read"
            for spot, one in seen.items()
            if not one.table
        ]
        with self._lock:
            self._seen, self._spots, self._owners, self._tables = seen, {}, {}, {}
            for spot in sorted(seen):
                self._adopt(spot, seen[spot])
            self._checked = self._steady()
        return tuple(faults)

    def tables(self) -> tuple[RoutingTable, ...]:
        """All tables that stand, sorted by policy and front-end."""
        with self._lock:
            return tuple(self._tables[key] for key in sorted(self._tables))

    def spots(self) -> dict[TableKey, Spot]:
        """Where they stand."""
        with self._lock:
            return dict(self._spots)

    def retained(self) -> frozenset[TableKey]:
        """Tables that are marked to stay."""
        with self._lock:
            return frozenset(key for key, spot in self._spots.items() if (one := self._seen.get(spot)) and one.retain)

    def newest_term(self) -> int:
        """The newest term on any table; 0 without one."""
        return max((table.identity.term for table in self.tables()), default=0)

    def namespaces(self) -> frozenset[str]:
        """Those with tables."""
        with self._lock:
            return frozenset(spot.namespace for spot in self._spots.values())

    def bars(self, key: TableKey, place: Place, places: Mapping[TableKey, Place]) -> bool:
        """Whether the place is not to be had now; ``refusals`` then says why."""
        spot = _wanted(key, place)
        with self._lock:
            refusal = self._occupied(key, place, spot, places, leaving=True)
            if refusal is not None:
                self.refusals[key] = refusal
                return True
            if self._barred_until.get(key, -float("inf")) > self._steady():
                return key in self.refusals
            self.refusals.pop(key, None)
            return False

    def forget_refusals(self, keys: Iterable[TableKey]) -> None:
        """Nobody asks for these here any more."""
        for key in keys:
            self.refusals.pop(key, None)
            self._barred_until.pop(key, None)

    # Writing

    def publish(self, tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> tuple[RoutingTable, ...]:
        """Write these tables, in parallel; gives those that now stand.

        Raises:
            NotLeading: nothing may be written any more.
        """
        jobs = [(table, place) for table in tables if (place := self._place(key_of(table), places)) is not None]
        outcomes = self._pool.each(jobs, lambda job: self._write(*job, places))
        self.silent = None
        written = []
        for (table, _), outcome in zip(jobs, outcomes, strict=True):
            refusal = refusal_of(self.cluster, outcome) if isinstance(outcome, KubeFault) else outcome
            if refusal is None:
                written.append(table)
            else:
                self._refuse(key_of(table), refusal)
        return tuple(written)

    def repair(self, places: Mapping[TableKey, Place], *, check: bool = True) -> tuple[TableKey, ...]:
        """Write again what is wanted elsewhere or otherwise, or what someone touched; gives what was written.

        check: also look at what stands, if that was not done for CHECK_SECONDS.

        Raises:
            NotLeading: nothing may be written any more.
            KubeFault: what stands can't be looked at.
        """
        touched: frozenset[TableKey] = frozenset()
        if check and self._steady() - self._checked >= CHECK_SECONDS:
            touched = self._touched(places)
            self._sweep()
        wanted = []
        for key, table in self._standing():
            place = places.get(key)
            if place is None or place.cluster != self.cluster or self._is_barred(key):
                continue
            if key in touched or (place.publishes and self._stands_otherwise(key, table, place)):
                uid = place.uid or table.identity.uid
                identity = Identity(uid=uid, term=self._term, revision=table.identity.revision)
                wanted.append(stamped(table, identity, table.issued) if identity != table.identity else table)
        return tuple(key_of(table) for table in self.publish(wanted, places))

    def remove(self, keys: Iterable[TableKey]) -> tuple[TableKey, ...]:
        """Remove these tables unless they are marked to stay; gives those that are gone.

        Raises:
            NotLeading: nothing may be written any more.
        """
        kept = self.retained()
        standing = self.spots()
        going = [key for key in keys if key not in kept and key in standing]
        outcomes = self._pool.each(going, self._delete)
        for key, outcome in zip(going, outcomes, strict=True):
            if isinstance(outcome, KubeFault):
                self._refuse(key, refusal_of(self.cluster, outcome))
        return tuple(key for key, outcome in zip(going, outcomes, strict=True) if outcome is None)

    # Rules

    def _write(self, table: RoutingTable, place: Place, places: Mapping[TableKey, Place]) -> Refusal | None:
        """Write one table, over what this term saw there last."""
        key = key_of(table)
        spot = _wanted(key, place)
        with self._lock:
            refusal = self._occupied(key, place, spot, places, leaving=False)
        if refusal is not None:
            return refusal
        manifest = table_manifest(table, place, spot, owned=self._owned)
        for _ in range(ATTEMPTS):
            try:
                found = self._put(spot, manifest)
            except KubeFault as fault:
                if not fault.conflict and not (fault.missing and spot in self._seen):
                    raise
                refusal = self._look_again(spot, place)
                if refusal is not None:
                    return refusal
                continue
            self._stands(key, table, place, spot, seen_of(found))
            return None
        return Refusal("WriteFailed", f"{self.cluster}: somebody else keeps writing ConfigMap {spot}; tried again")

    def _put(self, spot: Spot, manifest: Json) -> Json:
        """Create, apply, or replace where a policy must not own it any longer."""
        client, seen = self._client(), self._seen.get(spot)
        if seen is None:
            return client.create(spot.collection, manifest)
        metadata = {**manifest["metadata"], "uid": seen.uid, "resourceVersion": seen.version}
        if not seen.owners <= {str(one["uid"]) for one in metadata.get("ownerReferences", [])}:
            found = client.get(spot.path)
            metadata = {**found["metadata"], "uid": seen.uid, "resourceVersion": seen.version}
            return client.replace(spot.path, put_over({**found, "metadata": metadata}, manifest))
        return client.apply(spot.path, {**manifest, "metadata": metadata})

    def _look_again(self, spot: Spot, place: Place) -> Refusal | None:
        """Judge what stands after a conflict, and take up its version if it is ours to write over."""
        try:
            found = self._client().get(spot.path)
        except KubeFault as fault:
            if not fault.missing:
                raise
            with self._lock:
                self._seen.pop(spot, None)
            return None
        with self._lock:
            before, now = self._seen.get(spot), seen_of(found)
            # The object that this term wrote stays ours, whatever became of its labels.
            same_object = before is not None and before.uid == now.uid
            ours = labelled_ours(found) and (self._known(spot, now.policy) or now.policy == place.uid)
            if not same_object and not ours:
                self._seen.pop(spot, None)
                return not_ours(self.cluster, spot, now if labelled_ours(found) else None)
            self._judge_term(now, spot)
            self._seen[spot] = now
        return None

    def _judge_term(self, now: Seen, spot: Spot) -> None:
        if now.table is not None and now.table.identity.term > self._term:
            raise NotLeading(
                f"{self.cluster}: ConfigMap {spot} carries term {now.table.identity.term}, this is term {self._term}:"
                " another operator leads; nothing is written"
            )

    def _delete(self, key: TableKey) -> None:
        spot = self.spots().get(key)
        if spot is None:
            return
        for _ in range(ATTEMPTS):
            seen = self._seen.get(spot)
            if seen is None:
                break
            try:
                self._client().delete(spot.path, uid=seen.uid, resource_version=seen.version)
                break
            except KubeFault as fault:
                if not fault.conflict:
                    raise
                # Another object under this name is not ours to remove.
                if self._look_again(spot, Place(spot.name, uid=seen.policy)) is not None:
                    break
        with self._lock:
            self._forget(key)

    def _occupied(
        self, key: TableKey, place: Place, spot: Spot, places: Mapping[TableKey, Place], *, leaving: bool
    ) -> Refusal | None:
        """Why another policy's table has the place: it is older, or meant to stay. leaving: it may be moving off."""
        owner = self._owners.get(spot, key)
        if owner == key:
            return None
        theirs = places.get(owner)
        if theirs is None:
            seen = self._seen.get(spot)
            return taken(spot, owner) if seen is not None and seen.retain else None
        if theirs.publishes and (theirs.cluster != self.cluster or _wanted(owner, theirs) != spot):
            return None if leaving else taken(spot, owner)
        younger = (theirs.created, owner.policy, owner.frontend) > (place.created, key.policy, key.frontend)
        return None if younger else taken(spot, owner)

    # State

    def _touched(self, places: Mapping[TableKey, Place]) -> frozenset[TableKey]:
        """Tables that somebody changed or removed, as a list of metadata and a look at what differs tell."""
        listed: dict[Spot, tuple[str, str]] = {}
        strange = []
        for path in self.collections("/api/v1", "configmaps"):
            for found in self._client().every(path, labels=OURS, metadata_only=True):
                metadata = found["metadata"]
                spot = _spot(found)
                listed[spot] = (str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))
                if self._known(spot, str((metadata.get("labels") or {}).get(LABEL_POLICY_UID, ""))):
                    strange.append(spot)
        with self._lock:
            known = dict(self._seen)
        differing = [spot for spot, one in known.items() if listed.get(spot) != (one.uid, one.version)]
        strange = [spot for spot in strange if spot not in known]
        outcomes = self._pool.each([*differing, *strange], lambda spot: self._touched_at(spot, places))
        self._checked = self._steady()
        return frozenset(key for key in outcomes if isinstance(key, TableKey))

    def _touched_at(self, spot: Spot, places: Mapping[TableKey, Place]) -> TableKey | None:
        """Look at one ConfigMap anew; gives whose table must be written again."""
        with self._lock:
            key = self._owners.get(spot)
            place = None if key is None else places.get(key)
            expected = None
            if key is not None:
                expected = table_manifest(
                    self._tables[key], place or self._placed.get(key) or Place(spot.name), spot, owned=self._owned
                )
        try:
            found = self._client().get(spot.path)
        except KubeFault as fault:
            if not fault.missing:
                raise
            with self._lock:
                self._seen.pop(spot, None)
                if key is not None and place is None:
                    self._forget(key)
            return key if place is not None else None
        now = seen_of(found)
        with self._lock:
            self._judge_term(now, spot)
            if key is None:
                if labelled_ours(found):
                    self._seen[spot] = now
                    self._adopt(spot, now)
                return None
            before = self._seen.get(spot)
            if before is not None and before.uid != now.uid and not labelled_ours(found):
                self._seen.pop(spot, None)
                return key if place is not None else None
            self._seen[spot] = now
            return None if place is None or says_the_same(found, expected or {}) else key

    def _adopt(self, spot: Spot, seen: Seen) -> None:
        """Take a ConfigMap for the table that stands, unless a newer one does."""
        if seen.table is None or seen.key is None:
            return
        old = self._tables.get(seen.key)
        if old is not None and _order(old) >= _order(seen.table):
            return
        self._owners.pop(self._spots.get(seen.key, spot), None)
        self._tables[seen.key], self._spots[seen.key], self._owners[spot] = seen.table, spot, seen.key
        self._placed[seen.key] = Place(spot.name, self.cluster, seen.retain, next(iter(seen.owners), ""))

    def _stands(self, key: TableKey, table: RoutingTable, place: Place, spot: Spot, seen: Seen) -> None:
        with self._lock:
            other = self._owners.get(spot, key)
            if other != key:
                self._forget(other)
            old = self._spots.get(key)
            if old is not None:
                self._owners.pop(old, None)
            self._seen[spot] = seen
            self._spots[key], self._owners[spot] = spot, key
            self._tables[key], self._placed[key] = table, place
            self.refusals.pop(key, None)
            self._barred_until.pop(key, None)
        if old is not None and old != spot:
            self._leave(old)

    def _leave(self, spot: Spot) -> None:
        """Remove a ConfigMap that its table has moved away from; one that can't be removed now is swept later."""
        seen = self._seen.get(spot)
        if seen is None or spot in self._owners:
            return
        try:
            self._client().delete(spot.path, uid=seen.uid, resource_version=seen.version)
        except KubeFault:
            return
        with self._lock:
            self._seen.pop(spot, None)

    def _sweep(self) -> None:
        """Remove what tables left behind when they moved."""
        with self._lock:
            left = [
                spot
                for spot, one in self._seen.items()
                if spot not in self._owners and one.table is not None and one.key in self._spots and not one.retain
            ]
        for spot in left:
            self._leave(spot)

    def _forget(self, key: TableKey) -> None:
        spot = self._spots.pop(key, None)
        self._tables.pop(key, None)
        self._placed.pop(key, None)
        self.refusals.pop(key, None)
        if spot is not None:
            self._owners.pop(spot, None)
            self._seen.pop(spot, None)

    def _refuse(self, key: TableKey, refusal: Refusal) -> None:
        self.refusals[key] = refusal
        if refusal.reason == SILENT:
            self.silent = refusal
        elif refusal.reason != TAKEN:
            self._barred_until[key] = self._steady() + RETRY_SECONDS

    def _is_barred(self, key: TableKey) -> bool:
        return self._barred_until.get(key, -float("inf")) > self._steady()

    def _standing(self) -> list[tuple[TableKey, RoutingTable]]:
        with self._lock:
            return sorted(self._tables.items(), key=lambda item: item[0])

    def _place(self, key: TableKey, places: Mapping[TableKey, Place]) -> Place | None:
        """Where a table is wanted; where nobody asks for it, or it is not to move, where it stands."""
        place = places.get(key)
        with self._lock:
            if place is not None and place.publishes:
                return place
            spot = self._spots.get(key)
            placed = self._placed.get(key)
            return None if spot is None or placed is None else placed._replace(name=spot.name)

    def _stands_otherwise(self, key: TableKey, table: RoutingTable, place: Place) -> bool:
        with self._lock:
            spot = self._spots[key]
            seen = self._seen.get(spot)
            if spot != _wanted(key, place) or seen is None:
                return True
            owners = {place.uid} if self._owned and place.uid and not place.retain else set()
            return seen.retain != place.retain or seen.owners != owners or (place.uid not in ("", table.identity.uid))

    def collections(self, group: str, plural: str) -> list[str]:
        """Paths to list one kind by: cluster-wide, or one for each watched namespace."""
        if not self._watched:
            return [f"{group}/{plural}"]
        return [f"{group}/namespaces/{namespace}/{plural}" for namespace in self._watched]


def _wanted(key: TableKey, place: Place) -> Spot:
    return Spot(key.policy.partition("/")[0], place.name)


def _spot(found: Mapping[str, object]) -> Spot:
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    return Spot(str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def _order(table: RoutingTable) -> tuple[int, int]:
    return table.identity.term, table.identity.revision
