"""Publishing to a state directory: the ports of a standalone operator.

On the routing-weight path. Files are written whole or not at all; what an operator did not make is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace_operator.decision.memory import Memory
from headrace_operator.publisher.complaints import Complaints
from headrace_operator.publisher.configmap import dump
from headrace_operator.publisher.events import with_event
from headrace_operator.publisher.files import write_atomically
from headrace_operator.publisher.heartbeat import Heartbeat
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.ports import StatusKey, Stood
from headrace_operator.publisher.publisher import Publisher
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
from headrace_operator.publisher.statuses import StatusDirectory
from headrace_operator.publisher.tables import TableDirectory


class StandalonePublisher(Publisher):
    """A publisher of everything under ``--state``; made once for each start."""

    def __init__(self, state: Path, identity: StateIdentity) -> None:
        tables, complaints = TableDirectory(state), Complaints()
        faults = tables.read_back()
        stood = Stood(
            faults=faults,
            stored=[(one.kind, one.id, one.metadata.generation, one.spec) for one in read_stored(state)],
            statuses=recovered(state, read_statuses(state), tables.tables()),
            engine_statuses=read_engine_statuses(state),
            revision=last_revision(state, tables.tables()),
        )
        super().__init__(
            identity,
            stood,
            tables=tables,
            statuses=StatusDirectory(state, complaints),
            events=EventsFile(state),
            records=RecordFiles(state),
            heartbeat=Heartbeat(state),
            complaints=complaints,
        )


class EventsFile:
    """Events in one file under ``--state``."""

    def __init__(self, state: Path) -> None:
        self._path = state / EVENTS_FILE
        self._events = read_events(state)
        self._told: list[EventNote] = []

    def tell(
        self, notes: Sequence[EventNote], states: Sequence[EventNote], _uids: Mapping[StatusKey, str], at: str
    ) -> bool:
        """Write what happened, and what is newly so. at: now, RFC 3339.

        Raises:
            OSError: the file can't be written; the next one that can be has it.
        """
        news = [*notes, *(state for state in states if state not in self._told)]
        self._told = list(states)
        if not news:
            return False
        for note in news:
            self._events = with_event(self._events, note.kind, note.id, note.type, note.reason, note.message, at)
        write_atomically(self._path, dump(_listed(self._events)), sync=False)
        return True

    def send(self) -> None:
        """Nothing: what was told is written."""


class RecordFiles:
    """Records of publications, and the memory, in files below a directory."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def record(self, record: Record, keep: int, memory: Memory) -> bool:
        """Keep the record and ``keep`` older ones, and the memory.

        Raises:
            OSError: it can't be written.
        """
        write_record(self._state, record, keep)
        write_memory(self._state, memory)
        return True

    def remember(self, memory: Memory) -> bool:
        """Keep the memory.

        Raises:
            OSError: it can't be written.
        """
        write_memory(self._state, memory)
        return True


def _listed(events: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": events}


__all__ = ["EventNote", "EventsFile", "RecordFiles", "StandalonePublisher"]
