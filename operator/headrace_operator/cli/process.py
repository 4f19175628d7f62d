"""What both ways of running the operator share: its address, and its end by a signal."""

from __future__ import annotations

import asyncio
import signal


def address_of(text: str) -> tuple[str, int] | None:
    """HOST:PORT as a pair; None: it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        return None
    return host.strip("[]") or "127.0.0.1", int(port)


def end_on_signals(stop: asyncio.Event) -> None:
    """Set ``stop`` at the first SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
