"""Keeps what the loop shares with nobody's request (garbage collection, threads at work) from holding it up.

Beside every path. A full collection looks at all that was imported (some 25 ms) and at every object of every stream:
tens of milliseconds with thousands open. A view of a thousand engines is thousands of objects at once, which set off
collections that look at them in vain (up to 16 ms). Requests and views leave no cycles behind, so that collections of
what lives long can wait until nothing runs. Threads give the interpreter back within SWITCH. Must not keep memory for
good: after MOST_S one is made under load too.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

# Seconds that a thread at work may keep the loop waiting, each time that it let go of the interpreter, which it does
# several times a turn (asking whether a connection has ended); Python's own default is 5 ms.
SWITCH: Final = 0.0001
# Allocations beyond frees that start a young collection; young ones per middle one; middle ones per full one.
THRESHOLDS: Final = (5_000, 20, 1_000)
LOOK_EVERY: Final = 30.0
# Seconds between full collections: at least, when nothing runs; at most, whatever runs.
LEAST_S: Final = 300.0
MOST_S: Final = 3_600.0

P = ParamSpec("P")
T = TypeVar("T")


def settle() -> None:
    """Once, before serving: what was imported lives as long as the process; only full collections look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(SWITCH)


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``function`` in a thread; only full collections look at what it makes, thousands of objects.

    Nor do others look at whatever else lives when it ends. One at a time: a second would be collected when the first
    has ended.
    """
    gc.disable()
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    finally:
        gc.freeze()
        gc.enable()


async def collect_when_idle(idle: Callable[[], bool], clock: Callable[[], float]) -> None:
    """Full collections, until cancelled. idle: whether nothing would be held up; clock: monotonic seconds."""
    last = clock()
    while True:
        await asyncio.sleep(LOOK_EVERY)
        since = clock() - last
        if since >= MOST_S or (since >= LEAST_S and idle()):
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            last = clock()
