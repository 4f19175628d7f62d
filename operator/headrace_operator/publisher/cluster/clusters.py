"""The clusters of one leader's term: the operator's own, and those of its configuration, which comes and goes.

On the routing-weight path, at the start of a term and when the configuration changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_api.names import LEADER_LEASE
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.access import RemoteAccess
from headrace_operator.publisher.cluster.claims import GROUP_PATH, Claims
from headrace_operator.publisher.cluster.heartbeats import ClusterHeartbeat, NamespaceBeats, RemoteBeats
from headrace_operator.publisher.cluster.inventory import Inventory
from headrace_operator.publisher.cluster.remote import Remote
from headrace_operator.publisher.cluster.tables import ClusterTables
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.places import LOCAL, TableKey

log = logging.getLogger(__name__)

THREADS: Final = 8
BEAT_THREADS: Final = 4
REMOTE_THREADS: Final = 4
FIRST_READ_SECONDS: Final = 3.0
"""How long a takeover waits for other clusters, so that what stands there is known when it decides first."""


@dataclass(frozen=True, slots=True)
class Term:
    """One leader's term. namespace: the operator's. holder: its pod. watched: namespaces (none: all)."""

    local: KubeClient
    number: int
    namespace: str
    holder: str
    watched: tuple[str, ...]
    steady: Callable[[], float]
    claims: Claims

    def leads(self) -> bool:
        """Whether the leader's Lease still counts this term: whoever had taken it since would have raised the count."""
        try:
            lease = self.local.get(self._lease_path)
        except KubeFault:
            return False
        return bool(lease.get("spec", {}).get("leaseTransitions", 0) == self.number)

    def origin(self) -> str:
        """What tells this installation from those of other clusters, which may have its namespace's name: its Lease.

        Raises:
            KubeFault: it can't be read.
        """
        try:
            uid = self.local.get(self._lease_path)["metadata"].get("uid")
        except KubeFault as fault:
            if not fault.missing:
                raise
            uid = None
        return str(uid or self.namespace)

    @property
    def _lease_path(self) -> str:
        return f"{GROUP_PATH}/namespaces/{self.namespace}/leases/{LEADER_LEASE}"

    def may_write(self) -> bool:
        """What guards writes to every cluster."""
        return self.local.may_write()


class Clusters:
    """Targets, their threads, and what goes over all of them."""

    def __init__(self, term: Term, complaints: Complaints) -> None:
        self._term = term
        self._complaints = complaints
        self._paths: dict[str, Path] = {}
        self._pools = {LOCAL: Pool(THREADS, "tables"), "": Pool(BEAT_THREADS, "beats")}
        self.inventory = Inventory(term.local, term.namespace)
        here = TableTarget(
            LOCAL,
            lambda: term.local,
            self._pools[LOCAL],
            term=term.number,
            owned=True,
            watched=term.watched,
            known=lambda spot, _: not term.claims.taken(spot.namespace),
            leads=term.leads,
            steady=term.steady,
        )
        self.tables = ClusterTables(here, self.inventory, term.claims.taken)
        self.heartbeat = ClusterHeartbeat(NamespaceBeats(here, lambda: term.local, self._pools[""], term.claims))
        self._origin = ""

    def read_back(self, clusters: Mapping[str, Path]) -> tuple[str, ...]:
        """Take up what stands, also elsewhere as far as it answers soon; gives what is wrong, one line each.

        Raises:
            KubeFault: the own cluster can't be read.
        """
        try:
            self._term.claims.look()
        except KubeFault as fault:
            if not fault.forbidden:
                raise
            # Without rights to heartbeats there are none, and nobody is told apart; tables go on.
            log.warning("%s: another operator in a namespace would not be seen", fault.message)
        self._origin = self._term.origin()
        self.inventory.read_back()
        self.retarget(clusters)
        for remote in self.tables.remotes.values():
            remote.look({})
        faults = self.tables.local.read_back()
        deadline = time.monotonic() + FIRST_READ_SECONDS
        for remote in self.tables.remotes.values():
            remote.wait(max(0.0, deadline - time.monotonic()))
        left = [
            f"cluster {name} is configured no more; {count} tables of this operator stand there"
            for name, count in sorted(self.inventory.counts().items())
            if name not in clusters
        ]
        return (*faults, *left)

    def term_behind(self) -> int:
        """The newest term that stands, where it is not older than this one; else 0.

        What stood elsewhere with an older term carries this one already.
        """
        here = self.tables.local.newest_term()
        newest = max([here, *(remote.target.newest_term() for remote in self.tables.remotes.values())])
        return newest if newest > self._term.number or here == self._term.number else 0

    def retained(self) -> frozenset[TableKey]:
        """Tables marked to stay when nobody asks for them any more."""
        targets = [self.tables.local, *(remote.target for remote in self.tables.remotes.values())]
        return frozenset(key for target in targets for key in target.shelf.retained())

    def retarget(self, clusters: Mapping[str, Path]) -> None:
        """Take up the clusters of a configuration: new ones, those that went, and other files."""
        for name in [name for name, path in self._paths.items() if clusters.get(name) != path]:
            self.tables.remotes.pop(name).close(0.0)
            self.heartbeat.others.pop(name)
            self._pools.pop(name).close()
        for name, path in clusters.items():
            if name not in self.tables.remotes:
                self._make(name, path)
        self._paths = dict(clusters)

    def close(self, seconds: float) -> None:
        """Let other clusters end what they do, for a while; nothing more is begun."""
        until = time.monotonic() + seconds
        for remote in self.tables.remotes.values():
            remote.close(max(0.0, until - time.monotonic()))
        for pool in self._pools.values():
            pool.close()

    def _make(self, name: str, path: Path) -> None:
        term = self._term
        access = RemoteAccess(name, path, term.may_write)
        pool = self._pools[name] = Pool(REMOTE_THREADS, f"cluster-{name}")
        target = TableTarget(
            name,
            access.client,
            pool,
            term=term.number,
            owned=False,
            watched=term.watched,
            known=lambda spot, policy: self.inventory.has(name, spot, policy),
            leads=term.leads,
            steady=term.steady,
        )
        remote = Remote(target, term=term.number, steady=term.steady, complaints=self._complaints)
        self.tables.remotes[name] = remote
        beats = RemoteBeats(target, access.client, pool, origin=self._origin, holder=term.holder, watched=term.watched)
        self.heartbeat.others[name] = (remote, beats)
