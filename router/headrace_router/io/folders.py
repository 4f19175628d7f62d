"""Tells when something in a folder changes: a hint only, because a watch can die unnoticed (REL-01).

Beside the routing-weight path. Watches the folder, never a file in it (kubelet swaps a link, editors replace files),
and begins anew when the folder itself comes, goes or is replaced. Whoever relies on it reads again now and then.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watchfiles import awatch

log = logging.getLogger("headrace.router")

LOOK_EVERY: Final = 1.0


async def watch_folder(folder: Path, changed: Callable[[], None]) -> None:
    """Call ``changed`` at changes in ``folder``, which need not exist yet, until cancelled."""
    while True:
        if (identity := _identity(folder)) is not None:
            try:
                await _watch(folder, identity, changed)
            except OSError as error:
                log.debug("watching %s failed: %s", folder, error)
        await asyncio.sleep(LOOK_EVERY)


async def _watch(folder: Path, identity: tuple[int, int], changed: Callable[[], None]) -> None:
    """Until the folder goes or is replaced: a watch on what was deleted says nothing any more."""
    every = int(LOOK_EVERY * 1000)
    async for changes in awatch(
        folder, recursive=False, step=20, debounce=200, rust_timeout=every, yield_on_timeout=True
    ):
        if changes:
            changed()
        if _identity(folder) != identity:
            return


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return stat.st_dev, stat.st_ino
