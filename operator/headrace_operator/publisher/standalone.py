"""What a standalone operator publishes: tables, statuses, Events, records and the heartbeat, in one state directory.

On the routing-weight path. Order of a publication: tables first (routers wait for them), then the record, then what
people read. Only what changed is written. All methods do I/O and are called in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace_api.base import resource_id
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import EngineStatus, PolicyStatus
from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.tables.encode import configmap_name, stamped
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.configmap import dump
from headrace_operator.publisher.engine_status import SignalView, engine_status
from headrace_operator.publisher.events import with_event
from headrace_operator.publisher.files import write_atomically
from headrace_operator.publisher.heartbeat import Heartbeat
from headrace_operator.publisher.overlay import laid_over
from headrace_operator.publisher.records import Record, write_memory, write_record
from headrace_operator.publisher.recovery import recovered
from headrace_operator.publisher.state import (
    EVENTS_FILE,
    StateIdentity,
    last_revision,
    read_engine_statuses,
    read_events,
    read_statuses,
    read_stored,
)
from headrace_operator.publisher.statuses import StatusDirectory, StatusKey
from headrace_operator.publisher.tables import TableDirectory, TableKey, key_of
from headrace_operator.snapshot.model import EngineState

log = logging.getLogger(__name__)


class EventNote(NamedTuple):
    """One thing to tell: kind and id of the resource, Normal or Warning, reason, sentence."""

    kind: str
    id: str
    type: str
    reason: str
    message: str


class StandalonePublisher:
    """Everything under ``--state``; made once for each start."""

    def __init__(self, state: Path, identity: StateIdentity) -> None:
        self._state = state
        self.identity = identity
        self.tables = TableDirectory(state)
        self._complaints = Complaints()
        self._statuses = StatusDirectory(state, self._complaints)
        self._heartbeat = Heartbeat(state)
        self._events = read_events(state)
        self._told: dict[tuple[str, str], str] = {}
        self._orphaned: frozenset[TableKey] = frozenset()
        self.faults = self.tables.read_back()
        self.stored = [(one.kind, one.id, one.metadata.generation, one.spec) for one in read_stored(state)]
        self.policy_statuses = recovered(state, read_statuses(state), self.tables.tables())
        self._shown: dict[str, PolicyStatus] = dict(self.policy_statuses)
        self._engine_statuses: dict[str, EngineStatus] = read_engine_statuses(state)
        self.revision = last_revision(state, self.tables.tables())

    def stamp_term(self, names: Mapping[TableKey, str]) -> int:
        """Put this start's term on every table that stands: routers then take nothing from an earlier one any more."""
        wanted = [
            stamped(
                table,
                Identity(uid=self.identity.uid, term=self.identity.term, revision=table.identity.revision),
                table.issued,
            )
            for table in self.tables.tables()
            if (table.identity.uid, table.identity.term) != (self.identity.uid, self.identity.term)
        ]
        standing = {key: path.stem for key in map(key_of, wanted) if (path := self.tables.path(key)) is not None}
        return len(self.tables.publish(wanted, {**standing, **names}))

    def publish(self, tables: Iterable[RoutingTable], names: Mapping[TableKey, str]) -> tuple[RoutingTable, ...]:
        """Write changed tables and mend what someone touched; gives the changed ones that now stand."""
        for key in self.tables.repair(names):
            log.info("table of %s for front-end %s written again: it was removed or changed", *key)
        standing = self.tables.publish(tables, names)
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
        try:
            write_record(self._state, record, keep)
            write_memory(self._state, memory)
        except OSError as error:
            self._complaints.about("writing a record", error.strerror or error)
        else:
            self._complaints.settled("writing a record")

    def remember(self, memory: Memory) -> None:
        """Keep the memory although nothing was written: what Shadow policies would publish stands nowhere else."""
        try:
            write_memory(self._state, memory)
        except OSError as error:
            self._complaints.about("writing the memory", error.strerror or error)
        else:
            self._complaints.settled("writing the memory")

    def show_policies(self, policies: Sequence[RoutingPolicy], refused: Mapping[tuple[str, str], str], at: str) -> None:
        """Statuses of all policies, with what publishing found laid over them."""
        for policy in policies:
            name = resource_id(policy.metadata)
            status = self.policy_statuses.get(name)
            if status is None:
                continue
            unpublished = [
                (refusal.reason, refusal.message)
                for key, refusal in sorted(self.tables.refusals.items())
                if key.policy == name
            ]
            shown = laid_over(
                status,
                self._shown.get(name),
                unpublished=unpublished,
                fault=refused.get((policy.kind, name), ""),
                at=at,
            )
            self._shown[name] = shown
            self._statuses.set(policy, policy.metadata.generation, shown)

    def show_engines(
        self,
        engines: Sequence[InferenceEngine],
        states: Mapping[str, EngineState],
        views: Mapping[str, SignalView],
        refused: Mapping[tuple[str, str], str],
        at: str,
    ) -> None:
        """Statuses of all engines that the snapshot has."""
        for engine in engines:
            name = resource_id(engine.metadata)
            if name not in states:
                continue
            self._engine_statuses[name] = engine_status(
                engine,
                engine.metadata.generation,
                states[name],
                views.get(name),
                self._engine_statuses.get(name),
                at=at,
                fault=refused.get((engine.kind, name), ""),
            )
            self._statuses.set(engine, engine.metadata.generation, self._engine_statuses[name])

    def forget_others(self, resources: Sequence[InferenceEngine | RoutingPolicy]) -> None:
        """Drop the statuses of resources that are gone."""
        keys = {StatusKey(one.kind, resource_id(one.metadata)) for one in resources}
        self._statuses.keep_only(keys)
        ids = {key.id for key in keys if key.kind == "RoutingPolicy"}
        self.policy_statuses = {name: status for name, status in self.policy_statuses.items() if name in ids}
        engines = {key.id for key in keys if key.kind == "InferenceEngine"}
        self._engine_statuses = {name: one for name, one in self._engine_statuses.items() if name in engines}

    def tell(self, events: Iterable[EventNote], refused: Mapping[tuple[str, str], str], at: str) -> None:
        """Write Events; a refused edit is told once, not at every look."""
        notes = list(events)
        for (kind, name), message in refused.items():
            if self._told.get((kind, name)) != message:
                reason = "PolicyInvalid" if kind == "RoutingPolicy" else "EngineInvalid"
                notes.append(EventNote(kind, name, "Warning", reason, message))
        self._told = dict(refused)
        if not notes:
            return
        for note in notes:
            self._events = with_event(self._events, note.kind, note.id, note.type, note.reason, note.message, at)
        try:
            write_atomically(self._state / EVENTS_FILE, dump(_listed(self._events)), sync=False)
        except OSError as error:
            self._complaints.about("writing Events", error.strerror or error)
        else:
            self._complaints.settled("writing Events")

    def flush(self, steady: float, *, all_of_them: bool = False) -> int:
        """Write the statuses that are due; gives how many."""
        return self._statuses.flush(steady, all_of_them=all_of_them)

    def beat(self, steady: float, at: str) -> None:
        """Renew the heartbeat; a failure is logged, never more."""
        try:
            if self._heartbeat.renew(steady, at):
                self._complaints.settled("renewing the heartbeat")
        except OSError as error:
            self._complaints.about("renewing the heartbeat", error.strerror or error)


def table_names(policies: Iterable[RoutingPolicy]) -> dict[TableKey, str]:
    """Name of the ConfigMap of each policy and front-end."""
    return {
        TableKey(resource_id(policy.metadata), frontend.name): configmap_name(policy.metadata.name, frontend)
        for policy in policies
        for frontend in policy.spec.frontends
    }


def _listed(events: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": events}
