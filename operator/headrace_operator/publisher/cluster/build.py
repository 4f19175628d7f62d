"""A publisher for an operator in a cluster, made once the Lease is held: what stands is read back under the new term.

On the routing-weight path, once a term.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace_operator.decision.memory import Memory
from headrace_operator.kube.client import KubeClient
from headrace_operator.kube.pool import Pool
from headrace_operator.kube.seen import SeenStatuses
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.publisher.cluster.clusters import THREADS, Clusters, Term
from headrace_operator.publisher.cluster.events import ClusterEvents
from headrace_operator.publisher.cluster.statuses import ClusterStatuses, read_statuses
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.places import TableKey
from headrace_operator.publisher.ports import Records, Stood
from headrace_operator.publisher.publisher import Publisher
from headrace_operator.publisher.records import Record
from headrace_operator.publisher.recovery import recovered
from headrace_operator.publisher.standalone import RecordFiles
from headrace_operator.publisher.state import StateIdentity
from headrace_operator.snapshot.clock import rfc3339

CLOSE_SECONDS: Final = 5.0
NO_CLUSTERS: Mapping[str, Path] = {}


class TermBehind(Exception):
    """A table carries this term or a newer one: the Lease was deleted or restored. standing: the newest term."""

    def __init__(self, standing: int) -> None:
        super().__init__(f"tables carry term {standing}; right would be a Lease whose leaseTransitions are above")
        self.standing = standing


class NoRecords:
    """Where no --state is given, old decisions are not kept: statuses and tables are the memory."""

    def record(self, _record: Record, _keep: int, _memory: Memory) -> bool:
        """Nothing."""
        return False

    def remember(self, _memory: Memory) -> bool:
        """Nothing."""
        return False


class ClusterPublisher(Publisher):
    """A publisher in a cluster; ``cluster_publisher`` makes it."""

    def __init__(
        self, term: Term, clusters: Clusters, faults: Sequence[str], state: Path | None, seen: SeenStatuses | None
    ) -> None:
        """faults: what reading back found. state: where records are kept, if they are. seen: statuses as watches tell.

        Raises:
            KubeFault: statuses can't be read.
        """
        self._clusters = clusters
        self._pool = Pool(THREADS, "statuses")
        complaints = Complaints()
        stood = read_statuses(term.local, term.watched)
        tables = clusters.tables.tables()
        self._telling = ClusterEvents(term.local, complaints)
        records: Records = NoRecords() if state is None else RecordFiles(state)
        super().__init__(
            StateIdentity(uid="", term=term.number),
            Stood(
                faults=tuple(faults),
                statuses=recovered(state, stood.policies, tables),
                engine_statuses=stood.engines,
                revision=max((table.identity.revision for table in tables), default=0),
            ),
            tables=clusters.tables,
            statuses=ClusterStatuses(term.local, self._pool, stood, complaints, term.watched, seen=seen),
            events=self._telling,
            records=records,
            heartbeat=clusters.heartbeat,
            complaints=complaints,
        )

    @property
    def retained(self) -> frozenset[TableKey]:
        """Tables marked to stay when nobody asks for them any more."""
        return self._clusters.retained()

    def retarget(self, clusters: Mapping[str, Path]) -> None:
        """Take up the clusters of a changed configuration, kubeconfig file by name."""
        self._clusters.retarget(clusters)

    def close(self) -> None:
        """Let Events and other clusters end what they do, for a few seconds."""
        self._telling.close(CLOSE_SECONDS)
        self._clusters.close(CLOSE_SECONDS)
        self._pool.close()


def cluster_publisher(
    local: KubeClient,
    term: int,
    *,
    namespace: str,
    holder: str = "",
    watched: Sequence[str] = (),
    clusters: Mapping[str, Path] = NO_CLUSTERS,
    state: Path | None = None,
    claims: Claims | None = None,
    steady: Callable[[], float] = time.monotonic,
    seen: SeenStatuses | None = None,
) -> ClusterPublisher:
    """The publisher of a leader's term, with what stands read back. Does I/O: call it in a thread.

    local: the client of the operator's own cluster; its ``may_write`` guards writes to all. namespace: the operator's.
    holder: the pod's name. watched: namespaces (none: all). clusters: kubeconfig file by name. state: where records are
    kept, if they are. claims: whose namespaces are whose, where that was known before this term. seen: statuses as
    watches tell them.

    Raises:
        KubeFault: the own cluster can't be read.
        TermBehind: see there.
    """
    if claims is None:
        claims = Claims(local, namespace, holder, watched=watched, steady=steady, wall=lambda: rfc3339(time.time()))
    this = Term(local, term, namespace, holder, tuple(watched), steady, claims)
    made = Clusters(this, Complaints())
    try:
        faults = made.read_back(clusters)
        _ahead(made)
        return ClusterPublisher(this, made, faults, state, seen)
    except BaseException:
        made.close(0.0)
        raise


def _ahead(made: Clusters) -> None:
    behind = made.term_behind()
    if behind:
        raise TermBehind(behind)
