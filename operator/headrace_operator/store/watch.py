"""Wakes the operator when something under a directory changes; only a hint, contents are compared elsewhere.

On the routing-weight path. Where the system gives no watches (limits, a network file system) the periodic look finds
the edit one tick later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watchfiles import awatch

log = logging.getLogger(__name__)

SETTLE_MS: Final = 100  # edits that follow each other this closely are one
RETRY_SECONDS: Final = 5.0


async def watch(directory: Path, wake: Callable[[], None], stop: asyncio.Event) -> None:
    """Call ``wake`` after each edit under ``directory`` until ``stop`` is set; never raises for the file system."""
    told = False
    while not stop.is_set():
        try:
            async for _ in awatch(
                directory, stop_event=stop, debounce=SETTLE_MS, step=SETTLE_MS // 2, watch_filter=None, rust_timeout=500
            ):
                told = False
                wake()
        except (OSError, RuntimeError) as error:
            if not told:
                log.warning("%s can't be watched (%s): edits are seen at the next tick", directory, error)
                told = True
        if not stop.is_set():
            await asyncio.sleep(RETRY_SECONDS)
