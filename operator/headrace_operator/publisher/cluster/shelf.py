"""What is known to stand on one API server: whose table is where, and each ConfigMap of ours as it was last seen.

On the routing-weight path; memory only. Thread-safe: a publication writes several tables at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import RLock

from headrace_api.table import RoutingTable
from headrace_operator.publisher.cluster.objects import Seen, Spot
from headrace_operator.publisher.places import Place, TableKey


class Shelf:
    """Tables by key, ConfigMaps by place, and which is which."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.lock = RLock()
        self._seen: dict[Spot, Seen] = {}
        self._spots: dict[TableKey, Spot] = {}
        self._owners: dict[Spot, TableKey] = {}
        self._tables: dict[TableKey, RoutingTable] = {}
        self._placed: dict[TableKey, Place] = {}

    # Questions

    def tables(self) -> tuple[RoutingTable, ...]:
        """All tables that stand, sorted by policy and front-end."""
        with self.lock:
            return tuple(self._tables[key] for key in sorted(self._tables))

    def spots(self) -> dict[TableKey, Spot]:
        """Where they stand."""
        with self.lock:
            return dict(self._spots)

    def retained(self) -> frozenset[TableKey]:
        """Tables that are marked to stay."""
        with self.lock:
            return frozenset(key for key, spot in self._spots.items() if (one := self._seen.get(spot)) and one.retain)

    def seen(self, spot: Spot) -> Seen | None:
        """A ConfigMap as it was last read or written."""
        with self.lock:
            return self._seen.get(spot)

    def all_seen(self) -> dict[Spot, Seen]:
        """All of them."""
        with self.lock:
            return dict(self._seen)

    def owner(self, spot: Spot) -> TableKey | None:
        """Whose table stands there."""
        with self.lock:
            return self._owners.get(spot)

    def standing(self, key: TableKey) -> tuple[RoutingTable, Spot, Place] | None:
        """A table, where it stands, and the place it was written for."""
        with self.lock:
            spot = self._spots.get(key)
            return None if spot is None else (self._tables[key], spot, self._placed[key])

    def left_behind(self) -> list[Spot]:
        """ConfigMaps that a table has moved away from."""
        with self.lock:
            return [
                spot
                for spot, one in self._seen.items()
                if spot not in self._owners and one.table is not None and one.key in self._spots and not one.retain
            ]

    # Changes

    def take(self, seen: Mapping[Spot, Seen]) -> None:
        """Begin anew with what was read."""
        with self.lock:
            self._seen = dict(seen)
            self._spots, self._owners, self._tables, self._placed = {}, {}, {}, {}
            for spot in sorted(seen):
                self.adopt(spot, seen[spot])

    def adopt(self, spot: Spot, seen: Seen) -> None:
        """Take a ConfigMap for the table that stands, unless a newer one does."""
        with self.lock:
            self._seen[spot] = seen
            if seen.table is None or seen.key is None:
                return
            old = self._tables.get(seen.key)
            if old is not None and _order(old) >= _order(seen.table):
                return
            place = Place(spot.name, self._cluster, seen.retain, next(iter(seen.owners), ""))
            self._place(seen.key, seen.table, place, spot)

    def put(self, key: TableKey, table: RoutingTable, place: Place, spot: Spot, seen: Seen) -> Spot | None:
        """The table was written there; gives where it stood before, if that was elsewhere."""
        with self.lock:
            other = self._owners.get(spot, key)
            if other != key:
                self.forget(other)
            old = self._spots.get(key)
            self._seen[spot] = seen
            self._place(key, table, place, spot)
            return old if old != spot else None

    def see(self, spot: Spot, seen: Seen) -> None:
        """A ConfigMap of ours is so now."""
        with self.lock:
            self._seen[spot] = seen

    def unsee(self, spot: Spot) -> None:
        """There is no ConfigMap of ours there any more; whose table it was still wants it."""
        with self.lock:
            self._seen.pop(spot, None)

    def forget(self, key: TableKey) -> None:
        """The table is no more."""
        with self.lock:
            spot = self._spots.pop(key, None)
            self._tables.pop(key, None)
            self._placed.pop(key, None)
            if spot is not None:
                self._owners.pop(spot, None)
                self._seen.pop(spot, None)

    def let_go(self, namespaces: Collection[str]) -> None:
        """Forget what stands in these namespaces: others serve them now."""
        with self.lock:
            for key in [key for key, spot in self._spots.items() if spot.namespace in namespaces]:
                self.forget(key)

    def _place(self, key: TableKey, table: RoutingTable, place: Place, spot: Spot) -> None:
        old = self._spots.get(key)
        if old is not None:
            self._owners.pop(old, None)
        self._spots[key], self._owners[spot] = spot, key
        self._tables[key], self._placed[key] = table, place


def _order(table: RoutingTable) -> tuple[int, int]:
    return table.identity.term, table.identity.revision
