"""Runs the router with a look inside: the longest pause of its loop, or where its CPU time goes.

`python -m bench.router.inside [--pauses FILE] [--samples FILE] -- router ARGUMENTS`. Pauses: a timer each millisecond
notes how late it came; SIGUSR1 writes the longest delay since the last one to FILE (milliseconds) and begins anew.
Samples: between SIGUSR1 and SIGUSR2 the stack is noted at each tick of CPU time (SIGPROF), then written to FILE. Unlike
a profiler that is called at each call it makes no function dearer, and what else runs on the core is not in it. What
native code of the loop does is booked on the Python function that runs next.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

EVERY = 0.001
TICK = 0.001  # seconds of CPU; the kernel makes a tick of its own of it (4 ms at 250 Hz)


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
        nonlocal longest, last
        _write(into, f"{longest * 1000:.3f}\n")
        longest, last = 0.0, time.perf_counter()

    loop.add_signal_handler(signal.SIGUSR1, say)
    loop.call_later(EVERY, tick)


def watch_samples(loop: asyncio.AbstractEventLoop, into: Path) -> None:
    """Note stacks of this thread between the two signals."""
    stacks: Counter[tuple[CodeType, ...]] = Counter()

    def sample(_number: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        stacks[tuple(stack)] += 1

    def stop() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [
            json.dumps([count, [[code.co_filename, code.co_firstlineno, code.co_qualname] for code in stack]])
            for stack, count in stacks.items()
        ]
        _write(into, "\n".join(lines))

    signal.signal(signal.SIGPROF, sample)
    loop.add_signal_handler(signal.SIGUSR1, signal.setitimer, signal.ITIMER_PROF, TICK, TICK)
    loop.add_signal_handler(signal.SIGUSR2, stop)


def _write(place: Path, text: str) -> None:
    beside = place.with_suffix(".part")
    beside.write_text(text)
    beside.rename(place)


def main() -> int:
    """The router, with what was asked for around its loop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pauses", type=Path)
    parser.add_argument("--samples", type=Path)
    parser.add_argument("router", nargs="+")
    arguments = parser.parse_args()

    import uvloop

    from headrace_cli.main import main as headrace

    plain = uvloop.run

    async def around(serve: Coroutine[Any, Any, Any]) -> Any:
        loop = asyncio.get_running_loop()
        if arguments.pauses:
            watch_pauses(loop, arguments.pauses)
        if arguments.samples:
            watch_samples(loop, arguments.samples)
        return await serve

    def run(serve: Coroutine[Any, Any, Any], **options: Any) -> Any:
        return plain(around(serve), **options)

    uvloop.run = run  # type: ignore[assignment]
    sys.argv = ["headrace", *arguments.router]
    return int(headrace() or 0)


if __name__ == "__main__":
    sys.exit(main())
