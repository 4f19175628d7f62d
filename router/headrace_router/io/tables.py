"""Follows table files and swaps a whole new view in; a bad table changes nothing.

On the routing-weight path. Sees a change by watching the folders and, as the guarantee, by reading again every second
(REL-01). The last good table is kept for ever; a reject is counted once it stands still, is told in readiness detail,
and is cleared by the next good content, byte-identical restore included (REL-02). Must not touch requests in flight.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchfiles import awatch

from headrace_api.table import RoutingTable
from headrace_router.core.table_check import Rejected, Verdict, newer, parse_table
from headrace_router.core.view import TableView, build_view
from headrace_router.io.table_file import Content, Missing, Same, TableFile, Unreadable

log = logging.getLogger("headrace.router")

CHECK_EVERY: Final = 1.0
# An in-place write is seen in pieces: what is bad is read again after this before it counts.
SETTLE: Final = 0.1


@dataclass(slots=True)
class Followed:
    """One file: the table applied from it, and what is wrong with what stands there now."""

    file: TableFile
    table: RoutingTable | None = None
    error: str | None = None
    note: str | None = "not read yet"


class Tables:
    """All tables of one front-end.

    Args:
        paths: table files.
        frontend: the front-end served, or None: the first table says.
        current: the view in force, whose state goes on.
        install: called in the loop with each new view.
        rejected: called with the file's name for each table that is refused.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        frontend: str | None,
        *,
        current: Callable[[], TableView],
        install: Callable[[TableView], None],
        rejected: Callable[[str], None],
    ) -> None:
        self.frontend = frontend
        self.followed = [Followed(TableFile(path)) for path in paths]
        self._current = current
        self._install = install
        self._rejected = rejected
        self._changed = asyncio.Event()

    @property
    def applied(self) -> bool:
        """Whether a valid table was ever applied."""
        return any(entry.table is not None for entry in self.followed)

    async def follow(self) -> None:
        """Follow until cancelled."""
        watcher = asyncio.create_task(self._watch(), name="table-watch")
        try:
            while True:
                await self.check()
                try:
                    async with asyncio.timeout(CHECK_EVERY):
                        await self._changed.wait()
                except TimeoutError:
                    continue
                self._changed.clear()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def check(self) -> None:
        """Read every file once; swap if anything is new."""
        fresh: list[RoutingTable] = []
        for entry in self.followed:
            result = await asyncio.to_thread(self._read, entry)
            if isinstance(result, Unreadable):
                await asyncio.sleep(SETTLE)
                again = await asyncio.to_thread(self._read, entry)
                result = result if isinstance(again, Same) else again
            if self._judge(entry, result) and entry.table is not None:
                fresh.append(entry.table)
        if not fresh:
            return
        applied = [entry.table for entry in self.followed if entry.table is not None]
        view = await asyncio.to_thread(build_view, applied, self._current())
        self._install(view)
        for table in fresh:
            log.info("table of %s: revision %d in use", table.policy, table.identity.revision)

    def _read(self, entry: Followed) -> Missing | Unreadable | Same | RoutingTable:
        read = entry.file.read()
        if not isinstance(read, Content):
            return read
        table = parse_table(read.table)
        return Unreadable(table.reason) if isinstance(table, Rejected) else table

    def _judge(self, entry: Followed, result: Missing | Unreadable | Same | RoutingTable) -> bool:
        if isinstance(result, Same):
            return False
        if isinstance(result, Missing):
            entry.note = result.reason
            return False
        if isinstance(result, RoutingTable) and self.frontend not in (None, result.frontend):
            result = Unreadable(f"table is for front-end {result.frontend!r}; this router serves {self.frontend!r}")
        if isinstance(result, Unreadable):
            entry.error, entry.note = result.reason, None
            self._rejected(entry.file.path.name)
            log.warning("table refused, the last one stays: %s", _one_line(result.reason))
            return False
        entry.error = entry.note = None
        verdict = newer(entry.table, result)
        if verdict is Verdict.OLDER and entry.table is not None:
            entry.note = (
                f"revision {result.identity.revision} of term {result.identity.term} is older than the one in use "
                f"(revision {entry.table.identity.revision} of term {entry.table.identity.term}) and is ignored"
            )
            log.warning("table %s: %s", entry.file.path.name, entry.note)
        if verdict is not Verdict.APPLY:
            return False
        self.frontend = result.frontend
        entry.table = result
        return True

    async def _watch(self) -> None:
        while True:
            folders = sorted({entry.file.path.absolute().parent for entry in self.followed})
            there = {folder: identity for folder in folders if (identity := _identity(folder)) is not None}
            try:
                await self._watch_folders(there, len(there) == len(folders))
            except OSError as error:
                log.debug("watching %s failed: %s", folders, error)
            await asyncio.sleep(CHECK_EVERY)

    async def _watch_folders(self, there: dict[Path, tuple[int, int]], complete: bool) -> None:
        """Until a folder comes, goes or is replaced: a watch on what was deleted says nothing any more."""
        if not there:
            return
        every = int(CHECK_EVERY * 1000)
        async for _ in awatch(
            *there, recursive=False, step=20, debounce=200, rust_timeout=every, yield_on_timeout=True
        ):
            self._changed.set()
            if not complete or any(_identity(folder) != identity for folder, identity in there.items()):
                return


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
