"""Heartbeats: a Lease in every namespace and cluster with tables, by which routers there judge the operator's life.

On the routing-weight path, in a thread beside the loop; only the leader's client may write. Renewed at most every ten
seconds, removed with the last table of a namespace. A table's own age says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from headrace_api.names import HEARTBEAT_LEASE, HEARTBEAT_STALE_SECONDS, LABEL_MANAGED
from headrace_operator.kube.client import MANAGER, Json, KubeClient, KubeFault
from headrace_operator.kube.pool import Pool
from headrace_operator.publisher.cluster.objects import OURS
from headrace_operator.publisher.cluster.remote import Remote
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.heartbeat import RENEW_SECONDS

GROUP_PATH: Final = "/apis/coordination.k8s.io/v1"


class NamespaceBeats:
    """The Leases on one API server."""

    def __init__(self, target: TableTarget, client: Callable[[], KubeClient], pool: Pool, holder: str) -> None:
        self._target = target
        self._client = client
        self._pool = pool
        self._holder = holder
        self._beaten: set[str] | None = None

    def beat(self, at: str) -> None:
        """Renew all Leases, and remove those whose namespace has no tables any more. at: RFC 3339.

        Raises:
            KubeFault: one of them can't be renewed; the others were.
            NotLeading: nothing may be written any more.
        """
        namespaces = self._target.namespaces()
        outcomes = self._pool.each(
            sorted(namespaces), lambda one: self._client().apply(_path(one), self._lease(one, at))
        )
        faults = [outcome for outcome in outcomes if isinstance(outcome, KubeFault)]
        if faults:
            raise faults[0]
        if self._beaten is None:
            self._beaten = self._standing()
        for namespace in sorted(self._beaten - namespaces):
            self._client().delete(_path(namespace))
        self._beaten = set(namespaces)

    def _standing(self) -> set[str]:
        """Namespaces with a heartbeat of an earlier term."""
        found: set[str] = set()
        for path in self._target.collections(GROUP_PATH, "leases"):
            # By name: the operator's role covers no other Lease.
            for lease in self._client().every(
                path, labels=OURS, fields=f"metadata.name={HEARTBEAT_LEASE}", metadata_only=True
            ):
                found.add(str(lease["metadata"].get("namespace", "")))
        return found

    def _lease(self, namespace: str, at: str) -> Json:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": HEARTBEAT_LEASE, "namespace": namespace, "labels": {LABEL_MANAGED: MANAGER}},
            "spec": {
                "holderIdentity": self._holder or MANAGER,
                "leaseDurationSeconds": int(HEARTBEAT_STALE_SECONDS),
                "renewTime": _micro(at),
            },
        }


class ClusterHeartbeat:
    """The port of heartbeats: the own cluster now, each other one in its thread."""

    def __init__(self, local: NamespaceBeats) -> None:
        """others (none yet): those of other clusters by name; they come and go."""
        self._local = local
        self.others: dict[str, tuple[Remote, NamespaceBeats]] = {}
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


def _path(namespace: str) -> str:
    return f"{GROUP_PATH}/namespaces/{namespace}/leases/{HEARTBEAT_LEASE}"


def _micro(at: str) -> str:
    """RFC 3339 in the form of a MicroTime."""
    head, _, fraction = at.removesuffix("Z").partition(".")
    return f"{head}.{fraction[:6].ljust(6, '0')}Z"
