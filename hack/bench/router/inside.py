"""Runs the router with a look inside: the longest pause of its loop, or a profile. For measurements that say so.

`python -m bench.router.inside [--pauses FILE] [--profile FILE] -- router ARGUMENTS`. Pauses: a timer each millisecond
notes how late it came; SIGUSR1 writes the longest delay since the last one to FILE (milliseconds) and begins anew.
Profile: cProfile from SIGUSR1 to SIGUSR2, so that start and warming up stay out of it. Both cost time; figures of speed
are taken without.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

EVERY = 0.001


def watch_pauses(loop: asyncio.AbstractEventLoop, into: Path) -> None:
    """Note the longest pause of ``loop`` from now on."""
    longest, last = 0.0, time.perf_counter()

    def tick() -> None:
        nonlocal longest, last
        now = time.perf_counter()
        longest = max(longest, now - last - EVERY)
        last = now
        loop.call_later(EVERY, tick)

    def say() -> None:
        nonlocal longest
        beside = into.with_suffix(".part")
        beside.write_text(f"{longest * 1000:.3f}\n")
        beside.rename(into)
        longest = 0.0

    loop.add_signal_handler(signal.SIGUSR1, say)
    loop.call_later(EVERY, tick)


def watch_profile(loop: asyncio.AbstractEventLoop, into: Path) -> None:
    """Profile ``loop``'s thread between the two signals."""
    profile = cProfile.Profile()

    def stop() -> None:
        profile.disable()
        profile.dump_stats(into.with_suffix(".part"))
        into.with_suffix(".part").rename(into)

    loop.add_signal_handler(signal.SIGUSR1, profile.enable)
    loop.add_signal_handler(signal.SIGUSR2, stop)


def main() -> int:
    """The router, with what was asked for around its loop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pauses", type=Path)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("router", nargs="+")
    arguments = parser.parse_args()

    import uvloop

    from headrace_cli.main import main as headrace

    plain = uvloop.run

    async def around(serve: Coroutine[Any, Any, Any]) -> Any:
        loop = asyncio.get_running_loop()
        if arguments.pauses:
            watch_pauses(loop, arguments.pauses)
        if arguments.profile:
            watch_profile(loop, arguments.profile)
        return await serve

    def run(serve: Coroutine[Any, Any, Any], **options: Any) -> Any:
        return plain(around(serve), **options)

    uvloop.run = run  # type: ignore[assignment]
    sys.argv = ["headrace", *arguments.router]
    return int(headrace() or 0)


if __name__ == "__main__":
    sys.exit(main())
