"""Events in a cluster: one object a reason and resource, counted up by server-side apply, in a thread of their own.

On the routing-weight path, last: an Event that can't be written, or not soon, delays no table and no status. Counts go
on where the Event still stands, also after a restart; what is merely still so is not told again then.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, Final, NamedTuple

from headrace_api.status import clip
from headrace_operator.kube.client import KubeClient, KubeFault, NotLeading
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.events import MAX_MESSAGE, event_after, event_name
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.ports import StatusKey
from headrace_operator.snapshot.clock import epoch_seconds

log = logging.getLogger(__name__)

MAX_WAITING: Final = 4096
EXPIRY_SECONDS: Final = 3600.0  # the API server's own: what it has forgotten begins anew


class _Waiting(NamedTuple):
    note: EventNote
    times: int
    uid: str
    at: str
    still_so: bool


class ClusterEvents:
    """Tells Events, one after the other."""

    def __init__(self, client: KubeClient, complaints: Complaints) -> None:
        self._client = client
        self._complaints = complaints
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        self._lock = Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._running: Future[None] | None = None
        self._known: dict[str, dict[str, Any]] = {}
        self._told: list[EventNote] = []

    def tell(
        self, notes: Sequence[EventNote], states: Sequence[EventNote], uids: Mapping[StatusKey, str], at: str
    ) -> bool:
        """Put what happened, and what is newly so, behind what waits for ``send``. at: now, RFC 3339."""
        news = [(note, False) for note in notes]
        news += [(state, True) for state in states if state not in self._told]
        self._told = list(states)
        with self._lock:
            for note, still_so in news:
                name = f"{note.id.rpartition('/')[0]}/{event_name(note.kind, note.id, note.reason)}"
                before = self._waiting.get(name)
                if before is None and len(self._waiting) >= MAX_WAITING:
                    self._complaints.about("telling Events", f"{MAX_WAITING} wait already; new ones are left out")
                    continue
                times = 1 + (before.times if before is not None else 0)
                uid = uids.get(StatusKey(note.kind, note.id), "")
                self._waiting[name] = _Waiting(note, times, uid, at, still_so and before is None)
        return False

    def send(self) -> None:
        """Begin to write what waits, unless that is being done."""
        with self._lock:
            if self._waiting and (self._running is None or self._running.done()):
                self._running = self._thread.submit(self._tell_all)

    def close(self, seconds: float) -> None:
        """Let what waits be told, for a while."""
        self.send()
        with self._lock:
            running = self._running
        if running is not None:
            wait([running], timeout=seconds)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _tell_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                name = next(iter(self._waiting))
                waiting = self._waiting.pop(name)
            try:
                self._tell_one(name, waiting)
            except NotLeading:
                return
            except KubeFault as fault:
                self._complaints.about("telling Events", fault.message)
                if fault.status == 0:
                    self._put_back(name, waiting)
                    return
            else:
                self._complaints.settled("telling Events")

    def _tell_one(self, name: str, waiting: _Waiting) -> None:
        namespace, _, bare = name.partition("/")
        path = f"/api/v1/namespaces/{namespace}/events/{bare}"
        old = self._known.get(name)
        if old is None:
            old = self._standing(path)
        if old is not None and (_age(old, waiting.at) > EXPIRY_SECONDS or _of_another(old, waiting.uid)):
            old = None
        if waiting.still_so and old is not None and old.get("message") == clip(waiting.note.message, MAX_MESSAGE):
            self._known[name] = old
            return
        event = event_after(old, waiting.note, waiting.at, times=waiting.times, uid=waiting.uid)
        self._client.apply(path, event)
        self._known[name] = event
        while len(self._known) > MAX_WAITING:
            del self._known[next(iter(self._known))]

    def _standing(self, path: str) -> dict[str, Any] | None:
        try:
            return self._client.get(path)
        except KubeFault as fault:
            if fault.missing:
                return None
            raise

    def _put_back(self, name: str, waiting: _Waiting) -> None:
        """Tell it with the next news; what came up meanwhile counts too."""
        with self._lock:
            newer = self._waiting.pop(name, None)
            if newer is not None:
                waiting = newer._replace(times=newer.times + waiting.times)
            self._waiting = {name: waiting, **self._waiting}


def _of_another(event: Mapping[str, Any], uid: str) -> bool:
    """Whether the Event is about a resource that had the name before this one."""
    about = event.get("involvedObject")
    return isinstance(about, dict) and bool(uid) and about.get("uid", uid) != uid


def _age(event: Mapping[str, Any], at: str) -> float:
    last, now = epoch_seconds(str(event.get("lastTimestamp") or "")), epoch_seconds(at)
    return 0.0 if last is None or now is None else now - last
