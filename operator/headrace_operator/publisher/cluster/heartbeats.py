"""Heartbeats: a Lease in every namespace and cluster with tables, by which routers there judge the operator's life.

On the routing-weight path, in a thread beside the loop; only the leader's client may write. Renewed at most every ten
seconds, removed with the last table of a namespace. A table's own age says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from headrace_api.names import LABEL_INSTALLATION
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.claims import (
    FIELDS,
    LABELS,
    Claims,
    lease_collections,
    lease_manifest,
    lease_path,
)
from headrace_operator.publisher.cluster.remote import Remote
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.heartbeat import RENEW_SECONDS


class NamespaceBeats:
    """The Leases of the own cluster, which are claims too: none is touched in a namespace that another serves."""

    def __init__(self, target: TableTarget, client: Callable[[], KubeClient], pool: Pool, claims: Claims) -> None:
        self._target = target
        self._client = client
        self._pool = pool
        self._claims = claims

    def beat(self, at: str) -> None:
        """Renew all Leases, and remove those whose namespace has no tables and no policies. at: RFC 3339.

        Raises:
            KubeFault: one of them can't be renewed; the others were.
            NotLeading: nothing may be written any more.
        """
        standing = self._claims.look()
        self._target.shelf.let_go(self._claims.others())
        namespaces = self._claims.wanted() | self._target.namespaces()
        outcomes = self._pool.each(sorted(namespaces), lambda one: self._claims.renew(one, at))
        faults = [outcome for outcome in outcomes if isinstance(outcome, KubeFault)]
        if faults:
            raise faults[0]
        for namespace in sorted(standing - namespaces):
            self._client().delete(lease_path(namespace))


class RemoteBeats:
    """The Leases of another cluster, where several installations may publish, also to one namespace."""

    def __init__(
        self,
        target: TableTarget,
        client: Callable[[], KubeClient],
        pool: Pool,
        *,
        origin: str,
        holder: str,
        watched: Collection[str],
    ) -> None:
        """origin: what tells this installation from those of other clusters. holder: the pod. watched: namespaces."""
        self._target = target
        self._client = client
        self._pool = pool
        self._origin = origin
        self._holder = holder
        self._watched = tuple(watched)
        self._beaten: set[str] | None = None

    def beat(self, at: str) -> None:
        """Renew all Leases, and remove ours whose namespace has no tables of ours any more. at: RFC 3339.

        Raises:
            KubeFault: one of them can't be renewed; the others were.
            NotLeading: nothing may be written any more.
        """
        namespaces = self._target.namespaces()
        outcomes = self._pool.each(
            sorted(namespaces),
            lambda one: self._client().apply(lease_path(one), lease_manifest(one, self._holder, at, self._origin)),
        )
        faults = [outcome for outcome in outcomes if isinstance(outcome, KubeFault)]
        if faults:
            raise faults[0]
        if self._beaten is None:
            self._beaten = self._standing()
        for namespace in sorted(self._beaten - namespaces):
            self._client().delete(lease_path(namespace))
        self._beaten = set(namespaces)

    def _standing(self) -> set[str]:
        """Namespaces with a heartbeat of an earlier term of ours; other installations' are theirs."""
        return {
            str(lease["metadata"].get("namespace", ""))
            for path in lease_collections(self._watched)
            for lease in self._client().every(path, labels=LABELS, fields=FIELDS, metadata_only=True)
            if (lease["metadata"].get("labels") or {}).get(LABEL_INSTALLATION) == self._origin
        }


class ClusterHeartbeat:
    """The port of heartbeats: the own cluster now, each other one in its thread."""

    def __init__(self, local: NamespaceBeats) -> None:
        """others (none yet): those of other clusters by name; they come and go."""
        self._local = local
        self.others: dict[str, tuple[Remote, RemoteBeats]] = {}
        self._renewed: float | None = None

    def renew(self, steady: float, at: str) -> bool:
        """Renew all unless that was done less than ten seconds ago. steady: seconds; at: RFC 3339.

        Raises:
            KubeFault: one in the own cluster can't be renewed.
        """
        if self._renewed is not None and steady - self._renewed < RENEW_SECONDS:
            return False
        self._renewed = steady
        for remote, beats in list(self.others.values()):
            remote.do("renewing the heartbeat", partial(beats.beat, at))
        self._local.beat(at)
        return True
