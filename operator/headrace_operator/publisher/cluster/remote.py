"""Another cluster that tables go to: a thread of its own, so that one that hangs or is down delays nobody else.

On the routing-weight path. Until it was read in this term, and while it does not answer, nothing is decided for it: its
tables stay as they are and its policies say why. When it is back it is read anew, and the next round publishes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Final

from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.tables.encode import stamped
from headrace_operator.kube.client import KubeFault, NotLeading
from headrace_operator.publisher.cluster.refused import GONE, SILENT, refusal_of
from headrace_operator.publisher.cluster.target import TableTarget
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.places import Place, Refusal, TableKey, key_of

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""How long a publication waits for its writes in another cluster; what comes later is taken to come."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 15.0
MAX_WAITING: Final = 2
SWEEP_SECONDS: Final = 3600.0
"""How often it is read as a whole, so that orphans there are found."""


class Remote:
    """One remote cluster's tables and their thread."""

    def __init__(self, target: TableTarget, *, term: int, steady: Callable[[], float], complaints: Complaints) -> None:
        self.target = target
        self._complaints = complaints
        self.name = target.cluster
        self._term = term
        self._steady = steady
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"cluster-{self.name}")
        self._lock = Lock()
        self._closed = False
        self._fault: Refusal | None = Refusal(SILENT, f"cluster {self.name} was not read yet")
        self._spoken = False
        self._next = -float("inf")
        self._pause = FIRST_PAUSE
        self._read_at: float | None = None
        self._jobs: list[Future[None]] = []
        self._pending: dict[TableKey, RoutingTable] = {}
        self.faults: tuple[str, ...] = ()

    def fault(self) -> Refusal | None:
        """Why it is not to be had now."""
        with self._lock:
            return self._fault

    def tables(self) -> dict[TableKey, RoutingTable]:
        """What stands there as far as is known, with what is on its way; nothing before it was read."""
        with self._lock:
            pending = dict(self._pending)
        return {key_of(table): table for table in self.target.tables()} | pending

    def look(self, places: Mapping[TableKey, Place]) -> None:
        """Begin what is due: reading it, or mending what was touched there. Waits for nothing."""
        now = self._steady()
        with self._lock:
            self._jobs = [job for job in self._jobs if not job.done()]
            if self._jobs or now < self._next:
                return
            unread = self._fault is not None or self._read_at is None or now - self._read_at >= SWEEP_SECONDS
        self._begin(self._read if unread else lambda: self._mend(places))

    def idle(self) -> bool:
        """Whether nothing is being done there, nor waits to be."""
        with self._lock:
            return all(job.done() for job in self._jobs)

    def wait(self, seconds: float) -> None:
        """Wait until what was begun has ended, however it ended."""
        with self._lock:
            jobs = list(self._jobs)
        wait(jobs, timeout=seconds)

    def publish(self, tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> tuple[RoutingTable, ...]:
        """Write these tables; gives those that stand, or are on their way after a second."""
        mine = list(tables)
        with self._lock:
            self._pending |= {key_of(table): table for table in mine}
        written: list[RoutingTable] = []
        job = self._begin(lambda: self._write(mine, places, written))
        wait([job], timeout=PATIENCE_SECONDS)
        return tuple(written) if job.done() else tuple(mine)

    def remove(self, keys: Iterable[TableKey]) -> None:
        """Remove these tables, some time."""
        going = list(keys)
        self._begin(lambda: self.target.remove(going))

    def do(self, what: str, deed: Callable[[], object]) -> None:
        """Do something beside tables there, in its turn, unless more waits already; a failure is told once."""
        with self._lock:
            if self._fault is not None or sum(not job.done() for job in self._jobs) > MAX_WAITING:
                return

        def told() -> None:
            try:
                deed()
            except KubeFault as fault:
                if fault.status in GONE:
                    raise
                self._complaints.about(f"cluster {self.name}: {what}", fault.message)
            else:
                self._complaints.settled(f"cluster {self.name}: {what}")

        self._begin(told)

    def close(self, seconds: float) -> None:
        """Let what was begun end, for a while; nothing more is begun."""
        with self._lock:
            self._closed = True
        self.wait(seconds)
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _begin(self, job: Callable[[], object]) -> Future[None]:
        with self._lock:
            if self._closed:  # whoever still holds it, as the heartbeat's thread may, goes on with the others
                future: Future[None] = Future()
                future.set_result(None)
            else:
                future = self._worker.submit(self._guarded, job)
                self._jobs.append(future)
        return future

    def _guarded(self, job: Callable[[], object]) -> None:
        """A job's end is a state, never an exception that nobody sees."""
        try:
            job()
        except KubeFault as fault:
            self._down(refusal_of(self.name, fault))
        except NotLeading as lost:
            log.debug("%s", lost)
        except Exception:
            log.exception("cluster %s: a job failed that should not", self.name)
            self._down(Refusal(SILENT, f"cluster {self.name}: the operator failed at it; its log says how"))

    def _read(self) -> None:
        """Read it as a whole, and put this term on what stands there."""
        self.faults = self.target.read_back()
        old = [table for table in self.target.tables() if table.identity.term < self._term]
        wanted = [
            stamped(
                table,
                Identity(uid=table.identity.uid, term=self._term, revision=table.identity.revision),
                table.issued,
            )
            for table in old
        ]
        self.target.publish(wanted, {})
        if self._heard():
            with self._lock:
                self._read_at = self._steady()
            self._up()

    def _heard(self) -> bool:
        """Whether the last writes were answered."""
        silent = self.target.silent
        if silent is not None:
            self._down(silent)
        return silent is None

    def _mend(self, places: Mapping[TableKey, Place]) -> None:
        for key in self.target.repair(places):
            log.info(
                "cluster %s: table of %s for front-end %s written again: it was removed or changed", self.name, *key
            )
        self._heard()

    def _write(self, tables: list[RoutingTable], places: Mapping[TableKey, Place], written: list[RoutingTable]) -> None:
        try:
            written += self.target.publish(tables, places)
        finally:
            with self._lock:
                for table in tables:
                    if self._pending.get(key_of(table)) is table:
                        del self._pending[key_of(table)]
        self._heard()

    def _down(self, why: Refusal) -> None:
        with self._lock:
            first = not self._spoken or self._fault is None or self._fault.reason != why.reason
            # A reason's first words stand until it is back: a status holds nothing that moves by itself.
            if first:
                self._fault, self._spoken = why, True
            self._next = self._steady() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if first:
            log.warning("%s", why.message)

    def _up(self) -> None:
        with self._lock:
            back = self._spoken
            self._fault, self._spoken, self._pause, self._next = None, False, FIRST_PAUSE, -float("inf")
        if back:
            log.info("cluster %s answers", self.name)
