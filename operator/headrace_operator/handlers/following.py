"""Keeps the cluster store true: runs the watches, checks them against lists, and begins them anew when they are broken.

On the routing-weight path, in threads of its own. A watch that is lost for a while tells nothing of what was deleted
meanwhile; lists of names and versions do, and show also whether the watch told everything else. What can't be listed
(a lost permission, an API server that is away) leaves everything as it is known, and is said once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from headrace_api.base import GROUP, VERSION
from headrace_api.endpoint_slices import SERVICE_LABEL, service_of
from headrace_operator.handlers.session import Session, Watched
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.kube.seen import SeenStatuses
from headrace_operator.store.cluster import ClusterStore, Kind, ServicePort
from headrace_operator.store.cluster_index import Key, stamp_of

log = logging.getLogger(__name__)

CUSTOM: Final = f"/apis/{GROUP}/{VERSION}"
WATCHED: Final[dict[Kind, Watched]] = {
    "InferenceEngine": Watched("InferenceEngine", GROUP, VERSION, "inferenceengines"),
    "RoutingPolicy": Watched("RoutingPolicy", GROUP, VERSION, "routingpolicies"),
    "EndpointSlice": Watched("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices"),
    "Service": Watched("Service", "", "v1", "services"),
    "Node": Watched("Node", "", "v1", "nodes"),
}
SERVING: Final[frozenset[Kind]] = frozenset({"EndpointSlice", "Service"})
OPTIONAL: Final[frozenset[Kind]] = frozenset({"Node"})  # without permission for it the operator knows less, and works
COMPARE_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 1.0  # between comparisons while something is late or doubted
FAILED_SECONDS: Final = 5.0  # after a list that failed
MANY_SERVICES: Final = 8  # of one namespace: from here on all of them are listed
PROBE_SECONDS: Final = 300.0  # how often a kind that was forbidden is tried again
END_SECONDS: Final = 20.0  # of one call that is on its way at the end
BEGIN_SECONDS: Final = (1.0, 10.0)  # before a session that failed is begun anew: at first, at most


class Follower:
    """Follows one cluster. ``start`` gives at once; ``stop`` in bounded time."""

    def __init__(
        self,
        client: KubeClient,
        store: ClusterStore,
        wake: Callable[[], None],
        clock: Callable[[], float],
        namespaces: Sequence[str] = (),
        named: Sequence[ServicePort] = (),
        seen: SeenStatuses | None = None,
    ) -> None:
        """wake: called from other threads after each change. namespaces: watched ones; none means all.

        seen: told of every status.
        """
        self._client = client
        self._store = store
        self._wake = wake
        self._clock = clock
        self._namespaces = tuple(namespaces)
        self._named = tuple(named)
        self._wanted = self._namespaces, self._named
        self._seen = seen or SeenStatuses()
        self._stopping = threading.Event()
        self._sessions: list[Session] = []
        self._begin_at = -float("inf")
        self._patience = BEGIN_SECONDS[0]
        self._compare_at: dict[Kind, float] = {}
        self._forbidden: frozenset[Kind] = frozenset()
        self._probe_at = 0.0
        self._rest_until: dict[Key, float] = {}
        self._told: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._turn = threading.Lock()

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End the watches."""
        self._stopping.set()
        self._thread.join(END_SECONDS)
        with self._turn:
            for session in self._sessions:
                session.end()

    def follow(self, namespaces: Sequence[str], named: Sequence[ServicePort]) -> None:
        """Other namespaces or Services from the next step on; waits for none, which may be as slow as the server."""
        self._wanted = tuple(namespaces), tuple(named)

    @property
    def _kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in self._askable if kind not in self._forbidden)

    @property
    def _askable(self) -> tuple[Kind, ...]:
        """With watched namespaces nothing is asked of the cluster as a whole: Roles in them are all that is needed."""
        return tuple(kind for kind in WATCHED if not (self._namespaces and kind == "Node"))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._turn:
                    self.step()
            except Exception:
                log.exception("following the cluster failed; it is tried again")
                self._stopping.wait(BEGIN_SECONDS[0])
            self._stopping.wait(0.2)

    def step(self) -> None:
        """Do what is due now."""
        now = self._clock()
        if self._wanted != (self._namespaces, self._named):
            self._namespaces, self._named = self._wanted
            self._end("the configuration names other namespaces or Services")
        ended = [session for session in self._sessions if not session.alive]
        if ended:
            self._end(ended[0].ended_by or "the watches ended")
        if not self._sessions and now >= self._begin_at:
            self._begin(now)
        if self._sessions:
            self._read_services(now)
            for kind in self._kinds:
                if now >= self._compare_at.get(kind, 0.0):
                    self._compare(kind, now)
            if self._forbidden and now >= self._probe_at:
                self._probe_at = now + PROBE_SECONDS
                if any(self._refusal(kind) is None for kind in self._forbidden):
                    self._end("what was forbidden may be read now")

    def _begin(self, now: float) -> None:
        """Begin to watch every kind that may be listed."""
        self._patience = min(2 * self._patience, BEGIN_SECONDS[1])
        self._begin_at = now + self._patience
        forbidden: set[Kind] = set()
        for kind in self._askable:
            fault = self._refusal(kind)
            if fault is not None and kind in OPTIONAL and fault.forbidden:
                forbidden.add(kind)
            elif fault is not None:
                self._store.broken(kind, fault.message)
                return
        self._forbidden, self._probe_at = frozenset(forbidden), now + PROBE_SECONDS
        self._store.expect(self._kinds, self._named, self._namespaces)
        self._compare_at = {}
        self._watch(self._kinds, self._namespaces)
        # Routers' Services may stand where no resources are watched, and only there.
        if self._elsewhere:
            self._watch(sorted(SERVING), self._elsewhere)

    def _watch(self, kinds: Iterable[Kind], namespaces: Sequence[str]) -> None:
        watched = [WATCHED[kind] for kind in kinds]
        session = Session(watched, namespaces, lambda: self._client.settings, self._told_by_watch)
        self._sessions.append(session)
        session.start()

    @property
    def _elsewhere(self) -> tuple[str, ...]:
        """Namespaces outside the watched ones in which a Service is named."""
        if not self._namespaces:
            return ()
        return tuple(sorted({one.namespace for one in self._named} - set(self._namespaces)))

    def _end(self, why: str) -> None:
        if self._sessions:
            log.info("watches begin anew: %s", why)
            for session in self._sessions:
                session.end()
            self._sessions = []
            for kind in self._kinds:
                self._store.broken(kind, why)

    def _refusal(self, kind: Kind) -> KubeFault | None:
        """Why a kind can't be listed, said once; None: it can."""
        try:
            for path in self._paths(kind):
                self._client.list(path, fields="metadata.name=headrace-probe", metadata_only=True)
        except KubeFault as fault:
            self._say(kind, fault)
            return fault
        self._settled(kind)
        return None

    def _compare(self, kind: Kind, now: float) -> None:
        """Hold a list against what the watch told."""
        items: list[Any] = []
        version = ""
        try:
            for path in self._paths(kind):
                found = self._client.list(path, metadata_only=True)
                items += found.get("items") or ()
                version = _lowest(version, str((found.get("metadata") or {}).get("resourceVersion", "")))
        except KubeFault as fault:
            self._store.broken(kind, fault.message)
            self._say(kind, fault)
            self._compare_at[kind] = now + FAILED_SECONDS
            return
        self._settled(kind)
        compared = self._store.compare(kind, items, version)
        if compared.changed:
            self._wake()
        self._compare_at[kind] = now + (COMPARE_SECONDS if compared.settled else AGAIN_SECONDS)
        if compared.settled:
            self._patience = BEGIN_SECONDS[0]
        if compared.broken:
            self._end(f"{kind}s are listed that the watch did not tell")

    def _read_services(self, now: float) -> None:
        """Read Services that somebody begins to name, each with its EndpointSlices."""
        unread = self._store.unread()
        self._rest_until = {one: until for one in unread if (until := self._rest_until.get(one, now)) > now}
        due = [service for service in unread if service not in self._rest_until]
        for what, services, read in self._readings(due):
            if self._stopping.is_set():
                return
            try:
                read()
            except KubeFault as fault:
                self._say(what, fault)
                # Where there is no answer each of the others would take its whole time limit.
                resting = due if fault.status == 0 else services
                self._rest_until |= dict.fromkeys(resting, now + FAILED_SECONDS)
                if fault.status == 0:
                    return
            else:
                self._settled(what)
                self._wake()

    def _readings(self, due: Sequence[Key]) -> Iterator[tuple[str, Sequence[Key], Callable[[], None]]]:
        """What to read, in words, the Services that it tells of, and how."""
        for namespace in sorted({service.namespace for service in due}):
            services = [service for service in due if service.namespace == namespace]
            if len(services) >= MANY_SERVICES:
                yield f"Services of namespace {namespace}", services, partial(self._read_many, namespace, services)
                continue
            for one in services:
                yield f"Service {one.namespace}/{one.name}", [one], partial(self._read_one, one)

    def _read_many(self, namespace: str, services: Sequence[Key]) -> None:
        """All Services and EndpointSlices of a namespace, in place of two calls for each that is named."""
        slices: dict[str, list[Any]] = {}
        every = self._client.every(f"/api/v1/namespaces/{namespace}/services")
        found = {stamp.key.name: one for one in every if (stamp := stamp_of(one)) is not None}
        for one in self._client.every(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"):
            slices.setdefault(service_of(one), []).append(one)
        for service in services:
            self._store.give(service, found.get(service.name), slices.get(f"{namespace}/{service.name}", ()))

    def _read_one(self, service: Key) -> None:
        self._store.give(service, *self._service(service))

    def _service(self, service: Key) -> tuple[Mapping[str, Any] | None, list[Any]]:
        try:
            found = self._client.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        except KubeFault as fault:
            if not fault.missing:
                raise
            found = None
        slices = self._client.list(
            f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices",
            labels=f"{SERVICE_LABEL}={service.name}",
        )
        return found, list(slices.get("items") or ())

    def _told_by_watch(self, kind: str, change: str | None, item: Mapping[str, Any]) -> None:
        known: Any = kind
        if change != "DELETED":
            self._seen.tell(kind, item)
        changed = self._store.delete(known, item) if change == "DELETED" else self._store.upsert(known, item)
        # Whoever begins to name a Service is decided on when that was read, which wakes the loop.
        if changed and not self._store.unread():
            self._wake()

    def _paths(self, kind: Kind) -> list[str]:
        one = WATCHED[kind]
        base = f"/apis/{one.group}/{one.version}" if one.group else f"/api/{one.version}"
        if not self._namespaces or kind == "Node":
            return [f"{base}/{one.plural}"]
        namespaces = (*self._namespaces, *(self._elsewhere if kind in SERVING else ()))
        return [f"{base}/namespaces/{name}/{one.plural}" for name in namespaces]

    def _say(self, what: str, fault: KubeFault) -> None:
        if self._told.get(what) != fault.message:
            self._told[what] = fault.message
            log.warning("%s can't be read: %s%s", what, fault.message, _right(fault))

    def _settled(self, what: str) -> None:
        if self._told.pop(what, None) is not None:
            log.info("%s can be read again", what)


def _right(fault: KubeFault) -> str:
    if fault.forbidden:
        return "; right would be a role that may get, list and watch it"
    return "; right would be its CRD, installed" if fault.missing else ""


def _lowest(one: str, other: str) -> str:
    """The older of two versions of lists; what is unknown makes the whole unknown."""
    if not one or not other.isdecimal():
        return other
    return min(one, other, key=int) if one.isdecimal() else one
