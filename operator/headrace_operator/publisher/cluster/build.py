"""A publisher for an operator in a cluster, made once the Lease is held: what stands is read back under the new term.

On the routing-weight path, once a term.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace_api.names import LEADER_LEASE
from headrace_operator.decision.memory import Memory
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.access import RemoteAccess
from headrace_operator.publisher.cluster.events import ClusterEvents
from headrace_operator.publisher.cluster.heartbeats import ClusterHeartbeat, NamespaceBeats
from headrace_operator.publisher.cluster.inventory import Inventory
from headrace_operator.publisher.cluster.remote import Remote
from headrace_operator.publisher.cluster.statuses import ClusterStatuses, read_statuses
from headrace_operator.publisher.cluster.tables import ClusterTables
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.places import LOCAL, TableKey
from headrace_operator.publisher.ports import Records, Stood
from headrace_operator.publisher.publisher import Publisher
from headrace_operator.publisher.records import Record
from headrace_operator.publisher.recovery import recovered
from headrace_operator.publisher.standalone import RecordFiles
from headrace_operator.publisher.state import StateIdentity

THREADS: Final = 8
BEAT_THREADS: Final = 4
REMOTE_THREADS: Final = 4
FIRST_READ_SECONDS: Final = 3.0
"""How long a takeover waits for other clusters, so that what stands there is known when it decides first."""
CLOSE_SECONDS: Final = 5.0
NO_CLUSTERS: Mapping[str, Path] = {}


class TermBehind(Exception):
    """A table carries this term or a newer one: the Lease was deleted or restored. standing: the newest term."""

    def __init__(self, standing: int) -> None:
        super().__init__(f"tables carry term {standing}; right would be a Lease whose leaseTransitions are above")
        self.standing = standing


def leads_still(client: KubeClient, namespace: str, term: int) -> bool:
    """Whether the leader's Lease still counts this term: whoever had taken it since would have raised the count."""
    try:
        lease = client.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEADER_LEASE}")
    except KubeFault:
        return False
    return bool(lease.get("spec", {}).get("leaseTransitions", 0) == term)


class NoRecords:
    """Where no --state is given, old decisions are not kept: statuses and tables are the memory."""

    def record(self, _record: Record, _keep: int, _memory: Memory) -> bool:
        """Nothing."""
        return False

    def remember(self, _memory: Memory) -> bool:
        """Nothing."""
        return False


class _Factory:
    """Makes what belongs to one other cluster."""

    def __init__(
        self,
        local: KubeClient,
        term: int,
        holder: str,
        watched: Sequence[str],
        inventory: Inventory,
        steady: Callable[[], float],
        complaints: Complaints,
        leads: Callable[[], bool],
    ) -> None:
        self._leads = leads
        self._complaints = complaints
        self._local = local
        self._term = term
        self._holder = holder
        self._watched = watched
        self._inventory = inventory
        self._steady = steady

    def _may_write(self) -> bool:
        return self._local.may_write()

    def make(self, name: str, path: Path) -> tuple[Remote, NamespaceBeats]:
        access = RemoteAccess(name, path, self._may_write)
        pool = Pool(REMOTE_THREADS, f"cluster-{name}")
        target = TableTarget(
            name,
            access.client,
            pool,
            term=self._term,
            owned=False,
            watched=self._watched,
            known=lambda spot, policy: self._inventory.has(name, spot, policy),
            leads=self._leads,
            steady=self._steady,
        )
        remote = Remote(target, term=self._term, steady=self._steady, complaints=self._complaints)
        return remote, NamespaceBeats(target, access.client, pool, self._holder)


class ClusterPublisher(Publisher):
    """A publisher in a cluster; ``cluster_publisher`` makes it."""

    def __init__(
        self,
        local: KubeClient,
        term: int,
        *,
        namespace: str,
        holder: str,
        watched: Sequence[str],
        clusters: Mapping[str, Path],
        state: Path | None,
        steady: Callable[[], float],
    ) -> None:
        complaints = Complaints()

        def leads() -> bool:
            return leads_still(local, namespace, term)

        self._inventory = Inventory(local, namespace)
        self._inventory.read_back()
        self._factory = _Factory(local, term, holder, watched, self._inventory, steady, complaints, leads)
        self._paths = dict(clusters)
        others = {name: self._factory.make(name, path) for name, path in clusters.items()}
        for remote, _ in others.values():
            remote.look({})
        here = TableTarget(
            LOCAL,
            lambda: local,
            Pool(THREADS, "tables"),
            term=term,
            owned=True,
            watched=watched,
            leads=leads,
            steady=steady,
        )
        faults = here.read_back()
        deadline = time.monotonic() + FIRST_READ_SECONDS
        for remote, _ in others.values():
            remote.wait(max(0.0, deadline - time.monotonic()))
        self._tables = ClusterTables(here, {name: remote for name, (remote, _) in others.items()}, self._inventory)
        standing = max([here.newest_term(), *(remote.target.newest_term() for remote, _ in others.values())])
        # What stood elsewhere with an older term carries this one already.
        if standing > term or here.newest_term() == term:
            raise TermBehind(standing)
        stood = read_statuses(local, watched)
        tables = self._tables.tables()
        self._telling = ClusterEvents(local, complaints)
        self._beats = ClusterHeartbeat(NamespaceBeats(here, lambda: local, Pool(BEAT_THREADS, "beats"), holder), others)
        records: Records = NoRecords() if state is None else RecordFiles(state)
        super().__init__(
            StateIdentity(uid="", term=term),
            Stood(
                faults=(*faults, *self._left(clusters)),
                statuses=recovered(state, stood.policies, tables),
                engine_statuses=stood.engines,
                revision=max((table.identity.revision for table in tables), default=0),
            ),
            tables=self._tables,
            statuses=ClusterStatuses(local, Pool(THREADS, "statuses"), stood, complaints, watched),
            events=self._telling,
            records=records,
            heartbeat=self._beats,
            complaints=complaints,
        )

    def _left(self, clusters: Mapping[str, Path]) -> list[str]:
        """What stands in clusters that are configured no more: nobody can remove it from here."""
        return [
            f"cluster {name} is configured no more; {count} tables of this operator stand there"
            for name, count in sorted(self._inventory.counts().items())
            if name not in clusters
        ]

    @property
    def retained(self) -> frozenset[TableKey]:
        """Tables marked to stay when nobody asks for them any more."""
        found = set(self._tables.local.shelf.retained())
        for remote in self._tables.remotes.values():
            found |= remote.target.shelf.retained()
        return frozenset(found)

    def retarget(self, clusters: Mapping[str, Path]) -> None:
        """Take up the clusters of a changed configuration: new ones, those that went, and other files."""
        for name in [name for name, path in self._paths.items() if clusters.get(name) != path]:
            self._tables.remotes.pop(name).close(0.0)
            self._beats.others.pop(name)
        for name, path in clusters.items():
            if name not in self._tables.remotes:
                remote, beats = self._factory.make(name, path)
                self._tables.remotes[name] = remote
                self._beats.others[name] = (remote, beats)
        self._paths = dict(clusters)

    def close(self) -> None:
        """Let Events and other clusters end what they do, for a few seconds."""
        self._telling.close(CLOSE_SECONDS)
        for remote in self._tables.remotes.values():
            remote.close(CLOSE_SECONDS)


def cluster_publisher(
    local: KubeClient,
    term: int,
    *,
    namespace: str,
    holder: str = "",
    watched: Sequence[str] = (),
    clusters: Mapping[str, Path] = NO_CLUSTERS,
    state: Path | None = None,
    steady: Callable[[], float] = time.monotonic,
) -> ClusterPublisher:
    """The publisher of a leader's term, with what stands read back. Does I/O: call it in a thread.

    local: the client of the operator's own cluster; its ``may_write`` guards writes to all. namespace: the operator's.
    holder: the pod's name. watched: namespaces (none: all). clusters: kubeconfig file by name. state: where records are
    kept, if they are.

    Raises:
        KubeFault: the own cluster can't be read.
        TermBehind: see there.
    """
    return ClusterPublisher(
        local,
        term,
        namespace=namespace,
        holder=holder,
        watched=watched,
        clusters=clusters,
        state=state,
        steady=steady,
    )
