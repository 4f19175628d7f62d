"""Who of several operators writes: leader election by a Lease, whose count of transitions is the term.

On the routing-weight path, in a thread of its own, so that a long solve can't cost the Lease. What makes it safe is one
rule: this process leads only as long as its own steady clock says, counted from the START of its last renewal that
succeeded, and for less time than the others wait. The clock goes on while the process is stopped (SIGSTOP): on waking
it writes nothing before it has read the Lease. While nobody took that, it goes on in its term; else its time is over.
Others' times are never compared with ours: how long a holder has been silent is measured by our clock, from when we saw
its last change (docs/adr/0011-leader-by-lease.md).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

from headrace_api.names import LEADER_LEASE
from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.publisher.cluster.objects import MAX_TERM

log = logging.getLogger(__name__)

JITTER: Final = 0.2  # of the retry period, so that replicas don't ask in step
STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. lease: others wait so long after a holder's last sign. renew: the holder gives up after so long."""

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    @property
    def timeout(self) -> tuple[float, float]:
        """To connect and between bytes of one call: at least two attempts fit into ``renew``."""
        return min(2.0, 0.2 * self.renew), min(3.0, 0.3 * self.renew)


def steady_seconds() -> float:
    """A clock that also goes on while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Leader:
    """One candidate. ``step`` does what is due; ``start`` has a thread do it again and again until ``stop``.

    valid: whether it leads now, for the guard of every write. term: the count of the Lease's transitions, >= 1.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        identity: str,
        timing: Timing,
        *,
        on_change: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = steady_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """client: not guarded by this leader itself, with ``Timing.timeout``. identity: of this process, never reused.

        on_change: told from the thread when it begins to lead, and once when it leads no more.
        """
        self._client = client
        self._namespace = namespace
        self.identity = identity
        self._timing = timing
        self._on_change = on_change
        self._clock = clock
        self._wall = wall
        self._lease: dict[str, Any] | None = None
        self._highest = 0  # count of transitions that was ever seen: a Lease out of a backup counts from an earlier one
        self._sign: tuple[object, ...] = ()  # what the Lease said last
        self._silent = 0.0  # seconds that it was seen to say nothing else
        self._looked_at: float | None = None  # when it was read last; None: the last attempt failed
        self._until = -float("inf")
        self._leading = False
        self._lost = False
        self._raced = False
        self._fault = ""
        self.term = 0
        self.stepped_at = clock()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def valid(self) -> bool:
        """Whether this process leads now. Cheap, from any thread; never wrong for long pauses of the process."""
        return self._leading and self._clock() < self._until

    @property
    def holder(self) -> str:
        """Who holds the Lease as far as is known here; empty: nobody."""
        return str(_spec(self._lease).get("holderIdentity") or "")

    @property
    def _transitions(self) -> int:
        return _whole(_spec(self._lease).get("leaseTransitions"), 0)

    @property
    def started(self) -> bool:
        """Whether it runs for the Lease."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Run for it from now on."""
        self.stepped_at = self._clock()
        self._thread.start()

    def stop(self) -> None:
        """Don't lead and don't run for it any more; a Lease that is still ours is given back."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
        with self._turn:
            held, self._leading = self.valid(), False
            if held:
                self._release()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.step()
            except Exception:
                log.exception("leader election failed; it goes on")
            if self._lost:
                return
            self._stopping.wait(self._timing.retry * (1 + JITTER * random.random()))  # noqa: S311  no secret

    def step(self) -> None:
        """Renew, or try to get the Lease; once lost it is never tried again by this process."""
        with self._turn:
            if not self._lost and not self._stopping.is_set():
                self.stepped_at = self._clock()
                if self._leading:
                    self._renew()
                else:
                    self._try()

    def raise_term(self, least: int) -> bool:
        """Make the term at least this, because tables stand that carry a later one; gives whether that worked."""
        with self._turn:
            if self.term >= least:
                return self.valid()
            if not self.valid() or self._lease is None:
                return False
            return self._take(self._clock(), least)

    def _try(self) -> None:
        began = self._clock()
        try:
            self._look()
        except KubeFault as fault:
            self._say(fault)
            return
        if self._lease is None:
            # Made for nobody first: its uid shows whether it is the same one when it has been silent for long enough.
            self._write({"holderIdentity": "", "leaseTransitions": 0, "renewTime": self._time()})
        elif self._expired() and self._take(began, max(self._highest, self._transitions) + 1):
            self._leading = True
            log.info("leading from now on, term %d", self.term)
            self._on_change(True)

    def _look(self) -> None:
        """Read the Lease; count for how long it has been seen as it is.

        A time in which it could not be read counts for nothing: its holder could not renew it either.
        """
        before, self._looked_at = self._looked_at, None
        try:
            self._lease = self._client.get(self._path)
        except KubeFault as fault:
            if not fault.missing:
                raise
            self._lease = None
        if self._transitions <= MAX_TERM:
            self._highest = max(self._highest, self._transitions)
        now = self._clock()
        if _sign(self._lease) != self._sign:
            self._sign, self._silent = _sign(self._lease), 0.0
        elif before is not None:
            self._silent += now - before
        self._looked_at = now

    def _expired(self) -> bool:
        """Whether it may be taken: given back, ours, or without a sign for as long as its holder said.

        One that was just made may stand for one that was deleted under a leader, who is sure of itself for a while yet.
        """
        spec = _spec(self._lease)
        if self.holder == self.identity or (not self.holder and self._transitions > 0):
            return True
        stated = _whole(spec.get("leaseDurationSeconds"), 0)
        return self._silent >= max(stated, self._timing.lease)

    def _take(self, began: float, transitions: int) -> bool:
        """Write ourselves into the Lease as it was read; False: somebody else was faster, or nothing is known."""
        now = self._time()
        spec = {"holderIdentity": self.identity, "acquireTime": now, "leaseTransitions": transitions}
        if not self._write({**spec, "renewTime": now}):
            return False
        self.term, self._until = transitions, began + self._timing.renew
        return True

    def _renew(self) -> None:
        """Renew; also after a time without: as long as nobody took it, the term is still ours alone."""
        began = self._clock()
        if began >= self._until:
            # Whatever was read before the pause, or the outage, is too old to be judged by.
            self._lease = None
        if (self._lease is not None or self._still_ours()) and self._write({"renewTime": self._time()}):
            if began >= self._until:
                log.info("leading again, term %d: nobody took the Lease meanwhile", self.term)
            self._until = max(self._until, began + self._timing.renew)
        elif self._raced and not self._lost:
            self._still_ours()

    def _still_ours(self) -> bool:
        """Read who holds the Lease; another holder ends the leading at once."""
        try:
            self._look()
        except KubeFault as fault:
            self._say(fault)
            return False
        if self.holder != self.identity or self._transitions != self.term:
            self._lose(f"the Lease is held by {self.holder or 'nobody'}")
            return False
        return True

    def _write(self, changes: Mapping[str, Any]) -> bool:
        spec = {**_spec(self._lease), **changes, "leaseDurationSeconds": ceil(self._timing.lease)}
        try:
            if self._lease is None:
                self._lease = self._client.create(self._folder, {**_NEW, "metadata": self._name, "spec": spec})
            else:
                self._lease = self._client.replace(self._path, {**self._lease, "spec": spec})
        except KubeFault as fault:
            # Not known any more: perhaps somebody else's, perhaps written although no answer came.
            self._lease = None
            self._raced = fault.conflict or fault.missing
            if not self._raced:
                self._say(fault)
            return False
        self._raced = False
        self._settled()
        self._sign, self._silent = _sign(self._lease), 0.0
        return True

    def _lose(self, why: str) -> None:
        self._leading, self._lost = False, True
        log.error("not leading any more: %s", why)
        self._on_change(False)

    def _release(self) -> None:
        """Give it back, so that the next one need not wait."""
        if self._lease is None and not self._looked():
            return
        if self.holder == self.identity:
            spec = {**_spec(self._lease), "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._time()}
            try:
                self._client.replace(self._path, {**(self._lease or {}), "spec": spec})
            except KubeFault as fault:
                log.warning("the Lease was not given back (%s); the next leader waits until it ends", fault.message)

    def _looked(self) -> bool:
        try:
            self._look()
        except KubeFault:
            return False
        return self._lease is not None

    def _say(self, fault: KubeFault) -> None:
        if fault.message != self._fault:
            self._fault = fault.message
            right = "; right would be a role that may get, create and update leases" if fault.forbidden else ""
            log.warning("Lease %s/%s: %s%s", self._namespace, LEADER_LEASE, fault.message, right)

    def _settled(self) -> None:
        if self._fault:
            self._fault = ""
            log.info("Lease %s/%s can be written again", self._namespace, LEADER_LEASE)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{LEADER_LEASE}"

    @property
    def _name(self) -> dict[str, str]:
        return {"name": LEADER_LEASE, "namespace": self._namespace}


_NEW: Final = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


def _spec(lease: Mapping[str, Any] | None) -> dict[str, Any]:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _sign(lease: Mapping[str, Any] | None) -> tuple[object, ...]:
    """What changes whenever a holder gives a sign of life."""
    spec = _spec(lease)
    uid = (lease or {}).get("metadata", {}).get("uid")
    return (uid, spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
