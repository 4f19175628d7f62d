"""An API server that knows one Lease, for tests of leader election: conflicts, outages, answers that are lost."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any

from headrace_operator.kube.client import KubeFault

Json = dict[str, Any]


class Time:
    """Seconds that pass only when a test says so; a candidate's own clock may run fast or slow."""

    def __init__(self) -> None:
        self.now = 1000.0

    def clock(self, rate: float = 1.0) -> Callable[[], float]:
        return lambda: self.now * rate


class Leases:
    """The server. ``down``: nothing answers. ``before``: called before each call, such as to let time pass."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.version = 0
        self.writes = 0
        self.late: list[Callable[[], None]] = []

    def put(self, manifest: Mapping[str, Any]) -> Json:
        known = manifest["metadata"].get("resourceVersion", "")
        if self.lease is None and known:
            raise KubeFault(404, "NotFound", "leases not found")
        if self.lease is not None and known != self.lease["metadata"]["resourceVersion"]:
            raise KubeFault(409, "Conflict", "the object has been modified")
        self.version += 1
        self.writes += 1
        uid = str(self.version) if self.lease is None else self.lease["metadata"]["uid"]
        self.lease = copy.deepcopy(dict(manifest))
        self.lease["metadata"]["uid"] = uid
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)

    def come_late(self) -> None:
        """Requests whose senders gave up reach the server now."""
        late, self.late = self.late, []
        for deed in late:
            deed()


class LeaseClient:
    """One candidate's way to the server, in the shape of KubeClient.

    down: it doesn't reach it. lost: the next writes are done, and their answers lost. postponed: they are done only
    when the server's ``come_late`` says so. passing: called within each call, before and after it is done.
    """

    def __init__(self, server: Leases, passing: Callable[[], None] = lambda: None) -> None:
        self.server = server
        self.down = self.lost = self.postponed = self.forbidden = False
        self.passing = passing

    def get(self, path: str) -> Json:
        self._reach()
        if self.server.lease is None:
            raise KubeFault(404, "NotFound", "leases not found")
        found = copy.deepcopy(self.server.lease)
        self.passing()
        return found

    def create(self, path: str, manifest: Mapping[str, Any]) -> Json:
        return self._write(lambda: self.server.put(manifest))

    def replace(self, path: str, manifest: Mapping[str, Any]) -> Json:
        return self._write(lambda: self.server.put(manifest))

    def _write(self, deed: Callable[[], Json]) -> Json:
        self._reach()
        if self.postponed:
            self.server.late.append(lambda: _silently(deed))
            raise KubeFault(0, "NoAnswer", "timed out")
        done = deed()
        self.passing()
        if self.lost:
            raise KubeFault(0, "NoAnswer", "timed out")
        return done

    def _reach(self) -> None:
        self.passing()
        if self.down:
            raise KubeFault(0, "NoAnswer", "connection refused")
        if self.forbidden:
            raise KubeFault(403, "Forbidden", "leases is forbidden")


def _silently(deed: Callable[[], Json]) -> None:
    with contextlib.suppress(KubeFault):
        deed()
