"""What an operator publishes, wherever that is: tables, statuses, Events, records and the heartbeat.

On the routing-weight path. Order of a publication: tables first (routers wait for them), then the record, then what
people read. Only what changed is written. All methods do I/O and are called in a thread, one at a time (``beat``
beside the others). NotLeading ends whatever is being done: somebody else publishes now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace_api.base import Metadata, resource_id
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import PolicyStatus
from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.tables.encode import stamped
from headrace_operator.kube.client import KubeFault, NotLeading
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.engine_status import SignalView, engine_status
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.overlay import laid_over, rejected_engine, rejected_policy
from headrace_operator.publisher.places import Place, TableKey
from headrace_operator.publisher.ports import Events, Heartbeat, Records, Statuses, StatusKey, Stood, Tables
from headrace_operator.publisher.records import Record
from headrace_operator.publisher.state import StateIdentity
from headrace_operator.snapshot.model import EngineState

log = logging.getLogger(__name__)

Refused = Mapping[tuple[str, str], str]
"""Why the latest edit of a resource (kind, id) is not in force."""
Rejected = Mapping[tuple[str, str], Metadata]
"""Metadata, as they are now, of resources in ``Refused``."""
NONE_REJECTED: Rejected = {}


class Publisher:
    """One set of rules over the ports of a place; made once for each term."""

    def __init__(
        self,
        identity: StateIdentity,
        stood: Stood,
        *,
        tables: Tables,
        statuses: Statuses,
        events: Events,
        records: Records,
        heartbeat: Heartbeat,
        complaints: Complaints,
    ) -> None:
        self.identity = identity
        self.tables = tables
        self.faults = stood.faults
        self.stored = stood.stored
        self.policy_statuses = dict(stood.statuses)
        self.engine_statuses = dict(stood.engine_statuses)
        self.revision = stood.revision
        self._statuses = statuses
        self._events = events
        self._records = records
        self._heartbeat = heartbeat
        self._complaints = complaints
        self._shown: dict[str, PolicyStatus] = dict(self.policy_statuses)
        self._uids: dict[StatusKey, str] = {}
        self._orphaned: frozenset[TableKey] = frozenset()

    def stamp_term(self, places: Mapping[TableKey, Place]) -> int:
        """Put this term on every table that stands: routers then take nothing from an earlier one any more."""
        wanted = []
        for table in self.tables.tables():
            uid = self.identity.uid or table.identity.uid
            if (table.identity.uid, table.identity.term) != (uid, self.identity.term):
                identity = Identity(uid=uid, term=self.identity.term, revision=table.identity.revision)
                wanted.append(stamped(table, identity, table.issued))
        return len(self.tables.publish(wanted, places))

    def publish(self, tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> tuple[RoutingTable, ...]:
        """Write changed tables and mend what someone touched; gives the changed ones that now stand."""
        for key in self.tables.repair(places):
            log.info("table of %s for front-end %s written again: it was removed, changed or moved", *key)
        standing = self.tables.publish(tables, places)
        refused = {f"{key.policy} {key.frontend}": one.message for key, one in sorted(self.tables.refusals.items())}
        self._complaints.only("table of ", refused)
        if standing:
            self.revision = max(self.revision, *(table.identity.revision for table in standing))
        return standing

    def remove_orphans(self, orphans: Iterable[tuple[str, str]], *, certain: bool) -> tuple[TableKey, ...]:
        """Remove tables that no policy asks for, at the second look that says so.

        certain: no manifest is refused or missing, so that what is not there was really deleted.
        """
        now = frozenset(TableKey(*orphan) for orphan in orphans) if certain else frozenset()
        gone = sorted(now & self._orphaned)
        self._orphaned = now
        return self.tables.remove(gone)

    def record(self, record: Record, keep: int, memory: Memory) -> None:
        """Keep what a publication was decided from, and the memory after it; a failure is logged, never more."""
        self._attempt("writing a record", lambda: self._records.record(record, keep, memory))

    def remember(self, memory: Memory) -> None:
        """Keep the memory although nothing was written: what Shadow policies would publish stands nowhere else."""
        self._attempt("writing the memory", lambda: self._records.remember(memory))

    def show_policies(
        self,
        policies: Sequence[RoutingPolicy],
        refused: Refused,
        at: str,
        rejected: Rejected = NONE_REJECTED,
        trouble: str = "",
    ) -> None:
        """Statuses of all policies, with what publishing found laid over them; of rejected ones too.

        trouble: why nothing is decided any more.
        """
        unpublished: dict[str, list[tuple[str, str]]] = {}
        for key, refusal in sorted(self.tables.refusals.items()):
            unpublished.setdefault(key.policy, []).append((refusal.reason, refusal.message))
        for policy in policies:
            name = resource_id(policy.metadata)
            self._uids[StatusKey(policy.kind, name)] = policy.metadata.uid
            status = self.policy_statuses.get(name)
            if status is None and not trouble:
                continue
            shown = laid_over(
                status or PolicyStatus(),
                self._shown.get(name),
                unpublished=unpublished.get(name, ()),
                fault=refused.get((policy.kind, name), ""),
                trouble=trouble,
                at=at,
            )
            self._shown[name] = shown
            self._statuses.set(policy, policy.metadata.generation, shown)
        in_force = {resource_id(policy.metadata) for policy in policies}
        for (kind, name), metadata in rejected.items():
            if kind == "RoutingPolicy" and name not in in_force:
                self._uids[StatusKey(kind, name)] = metadata.uid
                fault = refused.get((kind, name), "")
                self._shown[name] = rejected_policy(metadata.generation, fault, self._shown.get(name), at)
                self._statuses.set_rejected(kind, metadata, self._shown[name])

    def show_engines(
        self,
        engines: Sequence[InferenceEngine],
        states: Mapping[str, EngineState],
        views: Mapping[str, SignalView],
        refused: Refused,
        at: str,
        rejected: Rejected = NONE_REJECTED,
    ) -> None:
        """Statuses of all engines that the snapshot has, and of those that never were in force."""
        for engine in engines:
            name = resource_id(engine.metadata)
            self._uids[StatusKey(engine.kind, name)] = engine.metadata.uid
            if name not in states:
                continue
            self.engine_statuses[name] = engine_status(
                engine,
                engine.metadata.generation,
                states[name],
                views.get(name),
                self.engine_statuses.get(name),
                at=at,
                fault=refused.get((engine.kind, name), ""),
            )
            self._statuses.set(engine, engine.metadata.generation, self.engine_statuses[name])
        in_force = {resource_id(engine.metadata) for engine in engines}
        for (kind, name), metadata in rejected.items():
            if kind == "InferenceEngine" and name not in in_force:
                self._uids[StatusKey(kind, name)] = metadata.uid
                old, fault = self.engine_statuses.get(name), refused.get((kind, name), "")
                self.engine_statuses[name] = rejected_engine(metadata.generation, fault, old, at)
                self._statuses.set_rejected(kind, metadata, self.engine_statuses[name])

    def forget_others(
        self, resources: Sequence[InferenceEngine | RoutingPolicy], rejected: Rejected = NONE_REJECTED
    ) -> None:
        """Drop the statuses of resources that are gone."""
        keys = {StatusKey(one.kind, resource_id(one.metadata)) for one in resources}
        keys |= {StatusKey(*name) for name in rejected}
        self._statuses.keep_only(keys)
        ids = {key.id for key in keys if key.kind == "RoutingPolicy"}
        self.policy_statuses = {name: status for name, status in self.policy_statuses.items() if name in ids}
        self._shown = {name: status for name, status in self._shown.items() if name in ids}
        engines = {key.id for key in keys if key.kind == "InferenceEngine"}
        self.engine_statuses = {name: one for name, one in self.engine_statuses.items() if name in engines}
        self._uids = {key: uid for key, uid in self._uids.items() if key in keys}

    def tell(self, events: Iterable[EventNote], refused: Refused, at: str) -> None:
        """Tell Events; a refused edit is told once, not at every look."""
        states = [
            EventNote(
                kind,
                name,
                "Warning",
                "PolicyInvalid" if kind == "RoutingPolicy" else "EngineInvalid",
                refused[kind, name],
            )
            for kind, name in refused
        ]
        notes = list(events)
        self._attempt("writing Events", lambda: self._events.tell(notes, states, self._uids, at))

    def flush(self, steady: float, *, all_of_them: bool = False) -> int:
        """Write the statuses that are due, then Events; gives how many statuses."""
        written = self._statuses.flush(steady, all_of_them=all_of_them)
        self._events.send()
        return written

    def beat(self, steady: float, at: str) -> None:
        """Renew the heartbeat; a failure is logged, never more."""
        self._attempt("renewing the heartbeat", lambda: self._heartbeat.renew(steady, at))

    def _attempt(self, what: str, deed: Callable[[], bool]) -> None:
        """Do what may fail without harm: it is logged once, never more. deed: whether there was anything to do."""
        try:
            if deed():
                self._complaints.settled(what)
        except NotLeading:
            raise
        except Exception as error:  # noqa: BLE001  a fault of ours in here must not end the heartbeat for good
            self._complaints.about(what, _word(error))


def _word(error: Exception) -> object:
    if isinstance(error, OSError):
        return error.strerror or error
    return error if isinstance(error, KubeFault) else f"{type(error).__name__}: {error}"
