"""Tables in every cluster that they go to: the operator's own, and the others of its configuration.

On the routing-weight path. The own cluster is written at once; each other one has its thread (see remote.py). A table
that is wanted in another cluster than it stands in is written there first and removed here afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace_api.table import RoutingTable
from headrace_operator.kube.client import KubeFault
from headrace_operator.publisher.cluster.inventory import Inventory
from headrace_operator.publisher.cluster.objects import Spot, wanted_spot
from headrace_operator.publisher.cluster.refused import refusal_of
from headrace_operator.publisher.cluster.remote import Remote
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.places import LOCAL, Place, Refusal, TableKey, key_of


class ClusterTables:
    """The port of tables, over one local cluster and any number of others."""

    def __init__(
        self, local: TableTarget, inventory: Inventory, taken: Callable[[str], bool] = lambda _: False
    ) -> None:
        """remotes (none yet): the other clusters by name; they come and go.

        taken: whether another installation serves a namespace, and with it the tables of policies there, anywhere.
        """
        self.local = local
        self._taken = taken
        self.remotes: dict[str, Remote] = {}
        self._inventory = inventory
        self._places: Mapping[TableKey, Place] = {}
        self._refused_here: dict[TableKey, Refusal] = {}

    @property
    def refusals(self) -> Mapping[TableKey, Refusal]:
        """Tables that don't stand where they are wanted, and why."""
        found = dict(self.local.refusals)
        for key, place in self._places.items():
            if place.cluster == LOCAL:
                continue
            found.pop(key, None)
            remote = self.remotes.get(place.cluster)
            theirs = remote.target.refusals.get(key) if remote is not None else None
            if theirs is not None:
                found[key] = theirs
        return {**found, **self._refused_here}

    def tables(self) -> tuple[RoutingTable, ...]:
        """All tables that stand: of two of one policy and front-end that in the wanted cluster, else the newest."""
        found: dict[TableKey, RoutingTable] = {key_of(table): table for table in self.local.tables()}
        for name, remote in self.remotes.items():
            for key, table in remote.tables().items():
                place = self._places.get(key)
                old = found.get(key)
                wanted_here = place is not None and place.cluster == name
                newer = place is None and old is not None and _order(table) > _order(old)
                if old is None or wanted_here or newer:
                    found[key] = table
        return tuple(found[key] for key in sorted(found) if not self._taken(key.policy.partition("/")[0]))

    def barred(self, places: Mapping[TableKey, Place]) -> frozenset[TableKey]:
        """Whose place is not to be had now: a cluster that is not known or not there, a name that another has."""
        self._look(places)
        found = set()
        for key, place in places.items():
            self._refused_here.pop(key, None)
            if not place.publishes:
                continue
            if place.cluster == LOCAL:
                barred = self.local.bars(key, place, places)
            else:
                barred = self._bars_remote(key, place, places)
            if barred:
                found.add(key)
        return frozenset(found)

    def publish(self, tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> tuple[RoutingTable, ...]:
        """Write these tables, those of the own cluster first."""
        here: list[RoutingTable] = []
        elsewhere: dict[str, list[RoutingTable]] = {}
        for table in tables:
            cluster = self._cluster_of(key_of(table), places)
            if cluster == LOCAL:
                here.append(table)
            else:
                elsewhere.setdefault(cluster, []).append(table)
        written = list(self.local.publish(here, places)) if here else []
        for cluster, theirs in sorted(elsewhere.items()):
            remote = self.remotes.get(cluster)
            if remote is not None and remote.fault() is None:
                written += remote.publish(self._entered(remote, theirs, places), places)
        return tuple(sorted(written, key=key_of))

    def repair(self, places: Mapping[TableKey, Place]) -> tuple[TableKey, ...]:
        """Mend what was touched here (the others mend by themselves), and move what is wanted in another cluster."""
        try:
            mended = list(self.local.repair(places))
        except KubeFault:
            mended = []  # what can't be looked at now is looked at next time; writes tell what is wrong
        if self.remotes:
            mended += map(key_of, self.publish(self._misplaced(places), places))
            self._remove_left_behind(places)
        return tuple(mended)

    def remove(self, keys: Iterable[TableKey]) -> tuple[TableKey, ...]:
        """Remove tables that nobody asks for; in other clusters that is done some time after it is given as done."""
        wanted = {key for key in keys if not self._taken(key.policy.partition("/")[0])}
        gone = set(self.local.remove(sorted(wanted)))
        for remote in self.remotes.values():
            theirs = sorted(wanted & remote.target.shelf.spots().keys() - remote.target.shelf.retained())
            if theirs and remote.fault() is None:
                remote.remove(theirs)
                gone.update(theirs)
        return tuple(sorted(gone))

    def _look(self, places: Mapping[TableKey, Place]) -> None:
        for key in self._places.keys() - places.keys():
            self._refused_here.pop(key, None)
            for target in self._targets():
                target.forget_refusals([key])
        self._places = places
        self._inventory.policies = frozenset(place.uid for place in places.values() if place.uid)
        for remote in self.remotes.values():
            if remote.fault() is not None or self._inventoried(remote, places):
                remote.look(places)

    def _inventoried(self, remote: Remote, places: Mapping[TableKey, Place]) -> bool:
        """Bring the inventory up to what stands and is wanted there; whether mending there may write over it."""
        standing = remote.target.shelf.spots()
        wanted = {
            key: (wanted_spot(key, place), place.uid)
            for key, place in places.items()
            if place.publishes and place.cluster == remote.name
        }
        if remote.idle():
            self._inventory.settle(remote.name, [*standing.values(), *(spot for spot, _ in wanted.values())])
        try:
            self._inventory.enter(remote.name, dict(wanted[key] for key in sorted(wanted.keys() & standing.keys())))
        except KubeFault:
            return False  # writes of tables tell what is wrong
        return True

    def _bars_remote(self, key: TableKey, place: Place, places: Mapping[TableKey, Place]) -> bool:
        remote = self.remotes.get(place.cluster)
        if remote is None:
            known = ", ".join([LOCAL, *sorted(self.remotes)])
            self._refused_here[key] = Refusal(
                "ClusterUnknown",
                f"publish.cluster: {place.cluster!r} is not in the operator's configuration; right would be {known}",
            )
            return True
        fault = remote.fault()
        if fault is not None:
            self._refused_here[key] = fault
            return True
        return remote.target.bars(key, place, places)

    def _entered(
        self, remote: Remote, tables: list[RoutingTable], places: Mapping[TableKey, Place]
    ) -> list[RoutingTable]:
        """Those whose places stand in the inventory, which is written before they are: else nobody could sweep them."""
        spots = {
            Spot(table.policy_namespace, places[key_of(table)].name): table.identity.uid
            for table in tables
            if key_of(table) in places
        }
        try:
            self._inventory.enter(remote.name, spots)
        except KubeFault as fault:
            refusal = refusal_of(LOCAL, fault)
            self._refused_here |= {key_of(table): refusal for table in tables}
            return []
        return tables

    def _misplaced(self, places: Mapping[TableKey, Place]) -> list[RoutingTable]:
        """Tables that stand in another cluster than they are wanted in, are not there yet, and could be."""
        there = {name: set(remote.tables()) for name, remote in self.remotes.items() if remote.fault() is None}
        there[LOCAL] = set(self.local.shelf.spots())
        found = []
        for table in self.tables():
            key = key_of(table)
            place = places.get(key)
            if place is not None and place.publishes and key not in there.get(place.cluster, (key,)):
                found.append(table)
        return found

    def _remove_left_behind(self, places: Mapping[TableKey, Place]) -> None:
        """Remove the old copy of a table that moved to another cluster and is known to stand there."""
        there = {
            name: set(remote.target.shelf.spots())
            for name, remote in self.remotes.items()
            if remote.fault() is None and remote.idle()
        }
        there[LOCAL] = set(self.local.shelf.spots())
        wanted = {key: place.cluster for key, place in places.items() if place.publishes}
        arrived = {key for key, cluster in wanted.items() if key in there.get(cluster, ())}
        for cluster, standing in there.items():
            left = sorted(key for key in standing & arrived if wanted[key] != cluster)
            if left and cluster == LOCAL:
                self.local.remove(left)
            elif left:
                self.remotes[cluster].remove(left)

    def _cluster_of(self, key: TableKey, places: Mapping[TableKey, Place]) -> str:
        """Where to write a table: where it is wanted, or where it stands if it is not to move."""
        place = places.get(key)
        if place is not None and place.publishes:
            return place.cluster
        if key in self.local.shelf.spots():
            return LOCAL
        return next((name for name, remote in self.remotes.items() if key in remote.target.shelf.spots()), LOCAL)

    def _targets(self) -> list[TableTarget]:
        return [self.local, *(remote.target for remote in self.remotes.values())]


def _order(table: RoutingTable) -> tuple[int, int]:
    return table.identity.term, table.identity.revision
