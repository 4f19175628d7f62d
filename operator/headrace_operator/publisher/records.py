"""Records: what a publication was decided from, kept in a small ring, so that an old decision can be explained.

On the routing-weight path, after it: a record that can't be written costs an explanation, never a table.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from headrace_api.status import PolicyStatus
from headrace_api.table import RoutingTable
from headrace_operator.decision.memory import Memory
from headrace_operator.publisher.files import write_atomically
from headrace_operator.snapshot.model import Snapshot

RECORDS: Final = "records"
MAX_BYTES: Final = 256 * 2**20  # of all records together


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One publication: everything that ``decide`` was given, and the tables it wrote.

    at: RFC 3339. memory: the decision's memory before it. before: the tables that stood. history: (policy id, line)
    that the publication added. statuses: by policy id, as they are after it; files follow some seconds later.
    """

    revision: int
    term: int
    uid: str
    at: str
    snapshot: Snapshot
    memory: Memory
    before: tuple[RoutingTable, ...] = ()
    written: tuple[RoutingTable, ...] = ()
    history: tuple[tuple[str, str], ...] = ()
    statuses: tuple[tuple[str, PolicyStatus], ...] = ()


def recorded_revisions(state: Path) -> tuple[int, ...]:
    """Revisions with a record, ascending."""
    names = (path.name.removesuffix(".json") for path in (state / RECORDS).glob("*.json"))
    return tuple(sorted(int(name) for name in names if name.isdecimal()))


def read_record(state: Path, revision: int) -> Record | None:
    """The record of a revision; None when there is none or it can't be read."""
    try:
        return msgspec.json.decode((state / RECORDS / f"{revision}.json").read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


class _Whose(msgspec.Struct, frozen=True, rename="camel"):
    policy: str
    policy_namespace: str


class _Written(msgspec.Struct, frozen=True):
    written: tuple[_Whose, ...] = ()


def written_policies(state: Path, revision: int) -> frozenset[str]:
    """Ids of the policies whose tables a publication wrote, without reading all of its record into objects."""
    try:
        found = msgspec.json.decode((state / RECORDS / f"{revision}.json").read_bytes(), type=_Written)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return frozenset()
    return frozenset(f"{table.policy_namespace}/{table.policy}" for table in found.written)


def write_record(state: Path, record: Record, keep: int) -> None:
    """Write one more record and remove the oldest beyond ``keep``, or beyond MAX_BYTES.

    Raises:
        OSError: it can't be written; older records stay.
    """
    write_atomically(state / RECORDS / f"{record.revision}.json", msgspec.json.encode(record), sync=False)
    total = 0
    for place, revision in enumerate(reversed(recorded_revisions(state))):
        path = state / RECORDS / f"{revision}.json"
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
            if place >= keep or (place > 0 and total > MAX_BYTES):
                path.unlink()


MEMORY_FILE: Final = "memory.json"


def read_memory(state: Path) -> Memory:
    """What the last publication left for the next decision; a fresh one where there is none or it can't be read.

    Savings and counts of overload begin anew with each start: they say since when something was seen without a gap.
    """
    try:
        old = msgspec.json.decode((state / MEMORY_FILE).read_bytes(), type=Memory)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return Memory()
    return msgspec.structs.replace(old, savings=(), over=())


def write_memory(state: Path, memory: Memory) -> None:
    """Keep the memory for the next start.

    Raises:
        OSError: it can't be written; the old one stays.
    """
    write_atomically(state / MEMORY_FILE, msgspec.json.encode(memory), sync=False)
