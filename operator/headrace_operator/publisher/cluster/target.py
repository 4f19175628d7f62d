"""Tables on one API server: written under the resourceVersion that this term read, and mended when touched.

On the routing-weight path. Every write names the version that this term last saw, so that nobody's late write (a paused
ex-leader's) lands over a newer one, nor ours over theirs. A conflict is read again and judged: a newer leader ends all
writing, another's ConfigMap is left alone, and ours is written again over what people made of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    spot_of,
    table_manifest,
    wanted_spot,
)
from headrace_operator.publisher.cluster.refused import (
    RETRY_SECONDS,
    SILENT,
    TAKEN,
    newer_term,
    not_ours,
    refusal_of,
    taken,
)
from headrace_operator.publisher.cluster.shelf import Shelf
from headrace_operator.publisher.places import Place, Refusal, TableKey, key_of

log = logging.getLogger(__name__)

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
        leads: Callable[[], bool] = lambda: False,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """owned: policies are in this cluster. watched: namespaces (none: all).

        known: whether a ConfigMap with our label, by its place and policy's uid, was made by this installation. leads:
        whether the Lease itself still says that this term is the last; asked when a table claims a newer one.
        """
        self.cluster = cluster
        self.shelf = Shelf(cluster)
        self._client = client
        self._pool = pool
        self._term = term
        self._owned = owned
        self._watched = tuple(watched)
        self._known = known
        self._leads = leads
        self._steady = steady
        self._barred_until: dict[TableKey, float] = {}
        self._checked = -float("inf")
        self.refusals: dict[TableKey, Refusal] = {}
        self.silent: Refusal | None = None  # why the last publication had no answer, if so

    def read_back(self) -> tuple[str, ...]:
        """Take up what stands; gives what is wrong with ConfigMaps that carry our label, one line each.

        Raises:
            KubeFault: the list can't be had.
        """
        seen: dict[Spot, Seen] = {}
        for path in self.collections("/api/v1", "configmaps"):
            for found in self._client().every(path, labels=OURS, page=PAGE):
                spot, one = spot_of(found), seen_of(found)
                if self._known(spot, one.policy):
                    seen[spot] = one
        self.shelf.take(seen)
        self._checked = self._steady()
        return tuple(
            f"{self.cluster}: ConfigMap {spot} has no table that can be read"
            for spot, one in seen.items()
            if not one.table
        )

    def tables(self) -> tuple[RoutingTable, ...]:
        """All tables that stand, sorted by policy and front-end."""
        return self.shelf.tables()

    def newest_term(self) -> int:
        """The newest term on any table; 0 without one."""
        return max((table.identity.term for table in self.tables()), default=0)

    def namespaces(self) -> frozenset[str]:
        """Those with tables."""
        return frozenset(spot.namespace for spot in self.shelf.spots().values())

    def bars(self, key: TableKey, place: Place, places: Mapping[TableKey, Place]) -> bool:
        """Whether the place is not to be had now; ``refusals`` then says why."""
        refusal = self._occupied(key, place, places, leaving=True)
        if refusal is not None:
            self.refusals[key] = refusal
            return True
        if self._is_barred(key):
            return key in self.refusals
        self.refusals.pop(key, None)
        return False

    def forget_refusals(self, keys: Iterable[TableKey]) -> None:
        """Nobody asks for these here any more."""
        for key in keys:
            self.refusals.pop(key, None)
            self._barred_until.pop(key, None)

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

    def repair(self, places: Mapping[TableKey, Place]) -> tuple[TableKey, ...]:
        """Write again what is wanted otherwise, or was touched (looked at each CHECK_SECONDS); gives what was written.

        Raises:
            NotLeading: nothing may be written any more.
            KubeFault: what stands can't be looked at.
        """
        touched: frozenset[TableKey] = frozenset()
        if self._steady() - self._checked >= CHECK_SECONDS:
            touched = self._touched(places)
            for spot in self.shelf.left_behind():
                self._leave(spot)
        wanted = []
        for table in self.tables():
            key = key_of(table)
            place = places.get(key)
            if (place is not None and place.cluster != self.cluster) or self._is_barred(key):
                continue
            # An older term was left by a write that failed: an earlier leader's late one could still land on it.
            if table.identity.term < self._term or key in touched or self._stands_otherwise(key, place):
                uid = (place.uid if place is not None else "") or table.identity.uid
                identity = Identity(uid=uid, term=self._term, revision=table.identity.revision)
                wanted.append(stamped(table, identity, table.issued) if identity != table.identity else table)
        return tuple(key_of(table) for table in self.publish(wanted, places))

    def remove(self, keys: Iterable[TableKey]) -> tuple[TableKey, ...]:
        """Remove these tables unless they are marked to stay; gives those that are gone.

        Raises:
            NotLeading: nothing may be written any more.
        """
        kept, standing = self.shelf.retained(), self.shelf.spots()
        going = [key for key in keys if key not in kept and key in standing]
        outcomes = self._pool.each(going, lambda key: self._delete(key, standing[key]))
        for key, outcome in zip(going, outcomes, strict=True):
            if isinstance(outcome, KubeFault):
                self._refuse(key, refusal_of(self.cluster, outcome))
        return tuple(key for key, outcome in zip(going, outcomes, strict=True) if outcome is None)

    def collections(self, group: str, plural: str) -> list[str]:
        """Paths to list one kind by: cluster-wide, or one for each watched namespace."""
        if not self._watched:
            return [f"{group}/{plural}"]
        return [f"{group}/namespaces/{namespace}/{plural}" for namespace in self._watched]

    # One table

    def _write(self, table: RoutingTable, place: Place, places: Mapping[TableKey, Place]) -> Refusal | None:
        """Write one table, over what this term saw there last."""
        key = key_of(table)
        spot = wanted_spot(key, place)
        refusal = self._occupied(key, place, places, leaving=False) or self._newer(spot)
        if refusal is not None:
            return refusal
        manifest = table_manifest(table, place, spot, owned=self._owned)
        for _ in range(ATTEMPTS):
            seen = self.shelf.seen(spot)
            try:
                found = self._put(spot, manifest, seen)
            except KubeFault as fault:
                if not fault.conflict and not (fault.missing and seen is not None):
                    raise
                refusal = self._look_again(spot, place)
                if refusal is not None:
                    return refusal
                continue
            before = self.shelf.put(key, table, place, spot, seen_of(found))
            self.forget_refusals([key])
            if before is not None:
                self._leave(before)
            return None
        return Refusal("WriteFailed", f"{self.cluster}: somebody else keeps writing ConfigMap {spot}; tried again")

    def _put(self, spot: Spot, manifest: Json, seen: Seen | None) -> Json:
        """Create, apply, or replace where a policy must not own it any longer."""
        client = self._client()
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
            self.shelf.unsee(spot)
            return None
        before, now = self.shelf.seen(spot), seen_of(found)
        # The object that this term wrote stays ours, whatever became of its labels.
        same_object = before is not None and before.uid == now.uid
        ours = labelled_ours(found) and (self._known(spot, now.policy) or now.policy == place.uid)
        if not same_object and not ours:
            self.shelf.unsee(spot)
            return not_ours(self.cluster, spot, now if labelled_ours(found) else None)
        self.shelf.see(spot, self._judged(now, spot))
        return None

    def _judged(self, now: Seen, spot: Spot) -> Seen:
        """What was read of a table that this term has written; one that claims a newer term is a person's doing, or
        another leader's word: the Lease tells which.

        Raises:
            NotLeading: another leads.
        """
        if now.table is None or now.table.identity.term <= self._term:
            return now
        claimed = f"{self.cluster}: ConfigMap {spot} carries term {now.table.identity.term}, this is term {self._term}"
        if not self._leads():
            raise NotLeading(f"{claimed}: another operator leads; nothing is written")
        log.warning("%s, and no other operator leads: it was edited, and is written over", claimed)
        return now._replace(table=None)

    def _newer(self, spot: Spot) -> Refusal | None:
        """Why a table that already had a newer term when this one began is left alone."""
        seen = self.shelf.seen(spot)
        if seen is None or seen.table is None or seen.table.identity.term <= self._term:
            return None
        return newer_term(self.cluster, spot, seen.table.identity.term, self._term)

    def _delete(self, key: TableKey, spot: Spot) -> None:
        for _ in range(ATTEMPTS):
            seen = self.shelf.seen(spot)
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
        self.shelf.forget(key)
        self.forget_refusals([key])

    def _leave(self, spot: Spot) -> None:
        """Remove a ConfigMap that its table has moved away from; one that can't be removed now is swept later."""
        seen = self.shelf.seen(spot)
        if seen is None or self.shelf.owner(spot) is not None:
            return
        try:
            self._client().delete(spot.path, uid=seen.uid, resource_version=seen.version)
        except KubeFault:
            return
        self.shelf.unsee(spot)

    def _occupied(
        self, key: TableKey, place: Place, places: Mapping[TableKey, Place], *, leaving: bool
    ) -> Refusal | None:
        """Why another policy's table has the place: it is older, or meant to stay. leaving: it may be moving off."""
        spot = wanted_spot(key, place)
        owner = self.shelf.owner(spot)
        if owner is None or owner == key:
            return None
        theirs = places.get(owner)
        if theirs is None:
            seen = self.shelf.seen(spot)
            return taken(spot, owner) if seen is not None and seen.retain else None
        if theirs.publishes and (theirs.cluster != self.cluster or wanted_spot(owner, theirs) != spot):
            return None if leaving else taken(spot, owner)
        younger = (theirs.created, owner.policy, owner.frontend) > (place.created, key.policy, key.frontend)
        return None if younger else taken(spot, owner)

    def _place(self, key: TableKey, places: Mapping[TableKey, Place]) -> Place | None:
        """Where a table is wanted; where nobody asks for it, or it is not to move, where it stands."""
        place = places.get(key)
        if place is not None and place.publishes:
            return place
        standing = self.shelf.standing(key)
        return None if standing is None else standing[2]._replace(name=standing[1].name)

    def _stands_otherwise(self, key: TableKey, place: Place | None) -> bool:
        standing = self.shelf.standing(key)
        if place is None or not place.publishes or standing is None:
            return False
        table, spot, _ = standing
        seen = self.shelf.seen(spot)
        if spot != wanted_spot(key, place) or seen is None:
            return True
        owners = {place.uid} if self._owned and place.uid and not place.retain else set()
        return seen.retain != place.retain or seen.owners != owners or place.uid not in ("", table.identity.uid)

    def _refuse(self, key: TableKey, refusal: Refusal) -> None:
        self.refusals[key] = refusal
        if refusal.reason == SILENT:
            self.silent = refusal
        elif refusal.reason != TAKEN:
            self._barred_until[key] = self._steady() + RETRY_SECONDS

    def _is_barred(self, key: TableKey) -> bool:
        return self._barred_until.get(key, -float("inf")) > self._steady()

    # What others did

    def _touched(self, places: Mapping[TableKey, Place]) -> frozenset[TableKey]:
        """Tables that somebody changed or removed, as a list of metadata and a look at what differs tell."""
        listed: dict[Spot, tuple[str, str]] = {}
        mine = set()
        for path in self.collections("/api/v1", "configmaps"):
            for found in self._client().every(path, labels=OURS, metadata_only=True):
                spot, metadata = spot_of(found), found["metadata"]
                listed[spot] = (str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")))
                if self._known(spot, str((metadata.get("labels") or {}).get(LABEL_POLICY_UID, ""))):
                    mine.add(spot)
        known = self.shelf.all_seen()
        differing = [spot for spot, one in known.items() if listed.get(spot) != (one.uid, one.version)]
        strange = sorted(mine - known.keys())
        outcomes = self._pool.each([*differing, *strange], lambda spot: self._touched_at(spot, places))
        self._checked = self._steady()
        return frozenset(key for key in outcomes if isinstance(key, TableKey))

    def _touched_at(self, spot: Spot, places: Mapping[TableKey, Place]) -> TableKey | None:
        """Look at one ConfigMap anew; gives whose table must be written again."""
        key = self.shelf.owner(spot)
        place = None if key is None else places.get(key)
        wanting = key if place is not None else None
        try:
            found = self._client().get(spot.path)
        except KubeFault as fault:
            if not fault.missing:
                raise
            self.shelf.unsee(spot)
            if key is not None and place is None:
                self.shelf.forget(key)
            return wanting
        before, now = self.shelf.seen(spot), self._judged(seen_of(found), spot)
        standing = None if key is None else self.shelf.standing(key)
        if standing is None:
            if labelled_ours(found):
                self.shelf.adopt(spot, now)
            return None
        if before is not None and before.uid != now.uid and not labelled_ours(found):
            self.shelf.unsee(spot)
            return wanting
        self.shelf.see(spot, now)
        manifest = table_manifest(standing[0], place or standing[2], spot, owned=self._owned)
        return None if says_the_same(found, manifest) else wanting
