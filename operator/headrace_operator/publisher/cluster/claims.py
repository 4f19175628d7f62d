"""One installation serves a namespace: the heartbeat Lease there says which, and others leave the namespace alone.

On the routing-weight path. Two operators that both take a namespace for theirs would write each other's tables over for
ever, each under a term that the other doesn't know. So the Lease is made, without force, before anything else is
written; the API server lets one of two do that. It is a tenant's namespace: whoever forges a Lease there harms that
namespace alone. How long another one is silent is measured by our own steady clock, and only while we can look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final

from headrace_api.names import HEARTBEAT_LEASE, HEARTBEAT_STALE_SECONDS, LABEL_INSTALLATION, LABEL_MANAGED
from headrace_operator.kube.client import MANAGER, Json, KubeClient, KubeFault
from headrace_operator.publisher.heartbeat import RENEW_SECONDS

log = logging.getLogger(__name__)

GROUP_PATH: Final = "/apis/coordination.k8s.io/v1"
LABELS: Final = f"{LABEL_MANAGED}={MANAGER}"
FIELDS: Final = f"metadata.name={HEARTBEAT_LEASE}"
"""By name: the operator's role covers no other Lease."""
GAP_SECONDS: Final = 3 * RENEW_SECONDS
"""Not having looked for so long, we know nothing of anybody's silence."""
FREE_SECONDS: Final = (60.0, 3600.0)
"""From one time that namespaces become free to the next: at first, and at most while that goes on. The term begins anew
each time, for everybody, and whoever may write one namespace's Leases can have it come and go."""


@dataclass(frozen=True, slots=True)
class _Other:
    """Another installation's Lease: what changes with its beats, and since when it is as it is, in steady seconds."""

    installation: str
    sign: tuple[str, str, str]
    since: float


class Claims:
    """Namespaces of the own cluster, and who serves them. Thread-safe. It outlives a leader's term."""

    def __init__(
        self,
        client: KubeClient,
        installation: str,
        holder: str = "",
        *,
        watched: Collection[str] = (),
        steady: Callable[[], float],
        wall: Callable[[], str],
        on_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """installation: the operator's namespace; its leader's Lease makes it one. watched: namespaces (none: all).

        wall: RFC 3339. on_freed: told when what another one served is free, so that the term begins anew over it.
        """
        self.installation = installation
        self._client = client
        self._manager = f"{MANAGER}-{installation}"
        self._holder = holder
        self._watched = tuple(watched)
        self._steady = steady
        self._wall = wall
        self._on_freed = on_freed
        self._lock = RLock()
        self._others: dict[str, _Other] = {}
        self._silent: set[str] = set()
        self._held: set[str] = set()
        self._wanted: frozenset[str] = frozenset()
        self._rest_until: dict[str, float] = {}
        self._free_from = -float("inf")
        self._free_rest = FREE_SECONDS[0]
        self._looked_at: float | None = None

    def watch(self, namespaces: Collection[str]) -> None:
        """Look there from now on (none: everywhere)."""
        self._watched = tuple(namespaces)

    def taken(self, namespace: str) -> bool:
        """Whether another installation serves it."""
        with self._lock:
            return namespace in self._others and namespace not in self._silent

    def others(self) -> dict[str, str]:
        """Namespaces that others serve, and whose they are."""
        with self._lock:
            return {name: one.installation for name, one in self._others.items() if name not in self._silent}

    def wanted(self) -> frozenset[str]:
        """Namespaces that have policies and that we serve."""
        with self._lock:
            return frozenset(name for name in self._wanted if not self.taken(name))

    def look(self) -> frozenset[str]:
        """See who beats where; gives the namespaces with Leases of our own.

        Raises:
            KubeFault: they can't be listed.
        """
        found: dict[str, Json] = {}
        for path in lease_collections(self._watched):
            for lease in self._client.every(path, labels=LABELS, fields=FIELDS):
                found[str(lease["metadata"].get("namespace", ""))] = lease
        with self._lock:
            now = self._steady()
            anew = self._looked_at is None or now - self._looked_at > GAP_SECONDS
            self._looked_at = now
            before, stood = self.others(), self._others
            self._others = {name: other for name, lease in found.items() if (other := self._other(name, lease, anew))}
            self._silent = {name for name, one in self._others.items() if now - one.since >= HEARTBEAT_STALE_SECONDS}
            self._held -= self.others().keys()
            freed = {name for name in before if name not in self.others() and name in self._wanted}
            if freed and not self._may_free(now):
                self._others |= {name: stood[name] for name in freed}
                self._silent -= freed
                freed = set()
        if freed:
            log.info("no other installation serves %s any more", ", ".join(sorted(freed)))
            self._on_freed()
        return frozenset(found.keys() - self.others().keys())

    def _may_free(self, now: float) -> bool:
        """Whether enough time has passed since namespaces became free last; then it begins anew."""
        if now < self._free_from:
            return False
        goes_on = now - self._free_from < FREE_SECONDS[1]
        self._free_rest = min(2 * self._free_rest, FREE_SECONDS[1]) if goes_on else FREE_SECONDS[0]
        self._free_from = now + self._free_rest
        return True

    def hold(self, namespaces: Collection[str]) -> Mapping[str, str]:
        """Claim these, which have policies, and no others; gives those that others serve, and whose they are.

        Raises:
            NotLeading: nothing may be written any more.
        """
        with self._lock:
            self._wanted = frozenset(namespaces)
            self._held &= self._wanted
            now = self._steady()
            self._rest_until = {name: at for name, at in self._rest_until.items() if at > now and name in namespaces}
            due = self._wanted - self._held - self._rest_until.keys()
            claiming = sorted(name for name in due if not self.taken(name))
        for name in claiming:
            try:
                self.renew(name, self._wall())
            except KubeFault as fault:
                # Without an answer nothing else can be written either; without rights for it no two can be told apart.
                log.debug("namespace %s can't be claimed: %s", name, fault.message)
                if fault.status == 0:
                    break  # each of the others would take its whole time limit
                if fault.forbidden:
                    self._rest_until[name] = now + RENEW_SECONDS
        return {name: whose for name, whose in self.others().items() if name in namespaces}

    def renew(self, namespace: str, at: str) -> bool:
        """Beat there, unless it is another's; gives whether it is ours. at: RFC 3339.

        Raises:
            KubeFault: the Lease can't be written.
            NotLeading: nothing may be written any more.
        """
        manifest = lease_manifest(namespace, self._holder, at, self.installation)
        force = False
        for last in (False, False, True):
            try:
                self._client.apply(lease_path(namespace), manifest, manager=self._manager, force=force)
                break
            except KubeFault as fault:
                if not fault.conflict or last:
                    raise
            if self._is_anothers(namespace, manifest):
                return False
            force = True
        with self._lock:
            self._held.add(namespace)
            self._others.pop(namespace, None)
            self._silent.discard(namespace)
        return True

    def _is_anothers(self, namespace: str, manifest: dict[str, Any]) -> bool:
        """Whose Lease stands where ours could not be written. If nobody's who lives, it will be written over that."""
        path = f"{GROUP_PATH}/namespaces/{namespace}/leases"
        stands = self._client.list(path, labels=LABELS, fields=FIELDS).get("items") or []
        manifest["metadata"].pop("resourceVersion", None)
        if not stands:
            return False
        manifest["metadata"]["resourceVersion"] = stands[0]["metadata"]["resourceVersion"]
        with self._lock:
            old, other = self._others.get(namespace), self._other(namespace, stands[0], anew=False)
            if other is None:
                return False
            self._others[namespace] = other
            if old is None or other.since != old.since:
                self._silent.discard(namespace)
            if namespace in self._silent:
                return False
            self._held.discard(namespace)
            return True

    def _other(self, namespace: str, lease: Json, anew: bool) -> _Other | None:
        """Whose Lease it is, if it is another's. anew: what was seen before tells nothing of its silence."""
        metadata, spec = lease["metadata"], lease.get("spec") or {}
        installation = str((metadata.get("labels") or {}).get(LABEL_INSTALLATION, ""))
        if installation in ("", self.installation):
            return None
        sign = (installation, str(metadata.get("uid", "")), str(spec.get("renewTime", "")))
        old = self._others.get(namespace)
        same = old is not None and old.sign == sign and not anew
        return _Other(installation, sign, old.since if old is not None and same else self._steady())


def lease_collections(watched: Collection[str]) -> list[str]:
    """Paths to list Leases by: cluster-wide, or one for each watched namespace."""
    return [f"{GROUP_PATH}/namespaces/{name}/leases" for name in watched] or [f"{GROUP_PATH}/leases"]


def lease_path(namespace: str) -> str:
    """Where the API server has a namespace's heartbeat."""
    return f"{GROUP_PATH}/namespaces/{namespace}/leases/{HEARTBEAT_LEASE}"


def lease_manifest(namespace: str, holder: str, at: str, installation: str) -> dict[str, Any]:
    """A heartbeat as it is applied. at: RFC 3339."""
    labels = {LABEL_MANAGED: MANAGER, LABEL_INSTALLATION: installation}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": HEARTBEAT_LEASE, "namespace": namespace, "labels": labels},
        "spec": {
            "holderIdentity": holder or MANAGER,
            "leaseDurationSeconds": int(HEARTBEAT_STALE_SECONDS),
            "renewTime": _micro(at),
        },
    }


def _micro(at: str) -> str:
    """RFC 3339 in the form of a MicroTime."""
    head, _, fraction = at.removesuffix("Z").partition(".")
    return f"{head}.{fraction[:6].ljust(6, '0')}Z"
