"""Tells when something in folders changes: a hint only, because a watch can die unnoticed (REL-01).

Beside the routing-weight path. Watches folders, never a file in them (kubelet swaps a link, editors replace files),
with one watch for all (a machine has few), and begins anew when a folder comes, goes or is replaced. Whoever relies on
it reads again now and then.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from watchfiles import awatch

log = logging.getLogger("headrace.router")

LOOK_EVERY: Final = 1.0


async def watch_folders(folders: Collection[Path], changed: Callable[[], None]) -> None:
    """Call ``changed`` at changes in ``folders``, which need not exist yet, until cancelled."""
    while True:
        there = {folder: identity for folder in sorted(folders) if (identity := _identity(folder)) is not None}
        try:
            await _watch(there, len(there) == len(folders), changed)
        except (OSError, RuntimeError) as error:  # RuntimeError: the machine has no watch left
            log.debug("watching %s failed: %s", sorted(folders), error)
        await asyncio.sleep(LOOK_EVERY)


async def _watch(there: dict[Path, tuple[int, int]], complete: bool, changed: Callable[[], None]) -> None:
    """Until a folder comes, goes or is replaced: a watch on what was deleted says nothing any more."""
    if not there:
        return
    every = int(LOOK_EVERY * 1000)
    async for _ in awatch(*there, recursive=False, step=50, debounce=200, rust_timeout=every, yield_on_timeout=True):
        changed()
        if not complete or any(_identity(folder) != identity for folder, identity in there.items()):
            return


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
