"""Follows the sources of tables and swaps a whole new view in; a bad table changes nothing.

On the routing-weight path. Reads when a source says that something changed and, as the guarantee, every second
(REL-01). The last good table is kept for ever; a reject is counted once it stands still, is told in readiness detail,
and is cleared by the next good content, byte-identical restore included (REL-02). Must not touch requests in flight.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace_api.table import RoutingTable
from headrace_router.core.build_view import build_view
from headrace_router.core.table_check import Rejected, Verdict, newer, parse_table
from headrace_router.core.view import TableView
from headrace_router.core.widen import drift, widened
from headrace_router.pauses import aside
from headrace_router.tables.folders import watch_folders
from headrace_router.tables.table_source import Content, Missing, Same, TableSource, Unreadable

log = logging.getLogger("headrace.router")

CHECK_EVERY: Final = 1.0
# Seconds from the first table on that readiness waits for a first word on the others, at most.
SETTLED_AFTER: Final = 5.0
NOT_READ: Final = "not read yet"
# An in-place write is seen in pieces: what is bad is read again after this before it counts.
SETTLE: Final = 0.1

Endpoints = Mapping[str, Collection[str]]


@dataclass(slots=True)
class Followed:
    """One source: the table applied from it (``at``: epoch seconds), and what is wrong with what stands there now.

    next: read and good, not applied yet: a source tells its news once. drift: see core/widen.py, as applied.
    """

    source: TableSource
    table: RoutingTable | None = None
    next: RoutingTable | None = None
    at: float = 0.0
    error: str | None = None
    note: str | None = NOT_READ
    drift: float = 0.0


class Tables:
    """All tables of one front-end.

    Args:
        sources: one a policy.
        frontend: the front-end served, or None: the first table says.
        current: the view in force, whose state goes on.
        endpoints: what is known of the Services that the tables name, by engine.
        install: called in the loop with each new view.
        rejected: called with the source's label for each table that is refused.
        silence: seconds since the operator's heartbeat; None: unknown.
    """

    def __init__(
        self,
        sources: Sequence[TableSource],
        frontend: str | None,
        *,
        current: Callable[[], TableView],
        endpoints: Callable[[Sequence[RoutingTable]], Endpoints],
        install: Callable[[TableView], None],
        rejected: Callable[[str], None],
        silence: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.frontend = frontend
        self.followed = [Followed(source) for source in sources]
        self._current = current
        self._endpoints = endpoints
        self._install = install
        self._rejected = rejected
        self._silence = silence
        self._changed = asyncio.Event()
        self._since = 0.0
        self._settled = False

    @property
    def applied(self) -> bool:
        """Whether a valid table was ever applied."""
        return any(entry.table is not None for entry in self.followed)

    def settled(self) -> bool:
        """Whether a table was applied and there was a first word on all; never False for long, nor ever again."""
        self._settled = self._settled or (
            self.applied
            and (
                all(entry.note != NOT_READ for entry in self.followed)
                or time.monotonic() - self._since >= SETTLED_AFTER
            )
        )
        return self._settled

    async def follow(self) -> None:
        """Follow until cancelled."""
        folders = {folder for entry in self.followed for folder in entry.source.folders}
        async with asyncio.TaskGroup() as group:
            for entry in self.followed:
                group.create_task(entry.source.follow(self._changed.set), name=f"table {entry.source.name}")
            if folders:
                group.create_task(watch_folders(folders, self._changed.set), name="table folders")
            group.create_task(self._check_for_ever(), name="tables")

    async def _check_for_ever(self) -> None:
        while True:
            await self.check()
            try:
                async with asyncio.timeout(CHECK_EVERY):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()

    async def check(self) -> None:
        """Read every source once; swap if anything is new."""
        for entry in self.followed:
            result = await self._read(entry)
            if isinstance(result, Unreadable) and not entry.source.whole:
                await asyncio.sleep(SETTLE)
                again = await self._read(entry)
                result = result if isinstance(again, Same) else again
            if (table := self._judge(entry, result)) is not None:
                entry.next = table
        fresh = [(entry, entry.next) for entry in self.followed if entry.next is not None]
        drifts = self._drifts()
        if not fresh and all(entry.drift == drifts[index] for index, entry in enumerate(self.followed)):
            return
        applied = [
            widened(table, drifts[index])
            for index, entry in enumerate(self.followed)
            if (table := entry.next or entry.table) is not None
        ]
        view = await aside(build_view, applied, self._current(), endpoints=self._endpoints(applied))
        self._install(view)
        self._since = self._since or time.monotonic()
        now = time.time()
        for entry, part in zip(self.followed, drifts, strict=True):
            if part != entry.drift:
                log.warning("%s: %s", entry.source.label, _told(part))
            entry.drift = part
        for entry, table in fresh:
            entry.table, entry.next, entry.at = table, None, now
            log.info("table of %s: revision %d in use", table.policy, table.identity.revision)

    def _drifts(self) -> list[float]:
        silence = self._silence()
        tables = [entry.next or entry.table for entry in self.followed]
        return [0.0 if table is None else drift(table, silence) for table in tables]

    async def _read(self, entry: Followed) -> Missing | Unreadable | Same | RoutingTable:
        read = await entry.source.read()
        if not isinstance(read, Content):
            return read
        table = await aside(parse_table, read.table)
        return Unreadable(table.reason) if isinstance(table, Rejected) else table

    def _judge(self, entry: Followed, result: Missing | Unreadable | Same | RoutingTable) -> RoutingTable | None:
        """The table to be applied, if what was read is one and new."""
        if isinstance(result, Same):
            return None
        if isinstance(result, Missing):
            if entry.note != result.reason and entry.table is not None:
                log.warning("%s; its last table is served", result.reason)
            entry.note = result.reason
            return None
        if isinstance(result, RoutingTable) and self.frontend not in (None, result.frontend):
            result = Unreadable(f"table is for front-end {result.frontend!r}; this router serves {self.frontend!r}")
        namespace = entry.source.namespace
        if isinstance(result, RoutingTable) and namespace not in (None, result.policy_namespace):
            result = Unreadable(f"table is of a policy in {result.policy_namespace!r}; right would be {namespace!r}")
        if isinstance(result, Unreadable):
            entry.error, entry.note = result.reason, None
            self._rejected(entry.source.label)
            log.warning("table refused, the last one stays: %s", _one_line(result.reason))
            return None
        entry.error = entry.note = None
        verdict = newer(entry.next or entry.table, result)
        if verdict is Verdict.OLDER and (known := entry.next or entry.table) is not None:
            entry.note = (
                f"revision {result.identity.revision} of term {result.identity.term} is older than the one in use "
                f"(revision {known.identity.revision} of term {known.identity.term}) and is ignored"
            )
            log.warning("table %s: %s", entry.source.label, entry.note)
        if verdict is not Verdict.APPLY:
            return None
        self.frontend = result.frontend
        return result


def _told(part: float) -> str:
    if part == 0.0:
        return "the operator is heard of again; the table's own weights are in force"
    return f"no heartbeat of the operator for staleness.widenAfter: weights are {part:.0%} by capacity"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
