"""Waiting for the first of several events, for a bounded time. Beside all paths; knows not what is waited for."""

from __future__ import annotations

import asyncio


async def first_of(timeout_seconds: float | None, *events: asyncio.Event) -> None:
    """Wait until one of the events is set, or the time (if any) is over."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
