"""Helper tasks that must not end while the router serves.

Beside every path. A fault that nobody thought of is logged with its stack and the task begins anew: a router that goes
on serving but no longer follows anything would look healthy for weeks. Must not hide a cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

log = logging.getLogger("headrace.router")

PAUSE: Final = 1.0


async def for_ever(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run ``run`` again whenever it ends, until cancelled."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("%s failed and begins anew", what)
        await asyncio.sleep(PAUSE)
