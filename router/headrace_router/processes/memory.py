"""The memory that the processes of one router share: rows of counts, found by name, and two locks off the hot path.

Made once, before anything is forked, and inherited. A row is claimed under a lock when a table brings something new;
counting takes none (core/shared.py). The locks are the kernel's on ranges of the file, so that whoever dies holds none.
Must not outlive the router: there is no file anywhere but in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final

from headrace_router.core.shared import FIELDS, IN_FLIGHT, RETURNED, WANTED_AT, WANTS_SINCE

log = logging.getLogger("headrace.router")

# Engines, addresses, pools and queues of all tables; what isn't touched takes no memory.
ROWS: Final = 32_768
# Rows looked at for one name: with half of them in use more than this is needed once in 10**10 times.
PROBES: Final = 64
# Seconds to wait for another process that is just claiming a row: it needs microseconds, unless it was stopped.
PATIENCE: Final = 1.0
_NAME: Final = Struct("2q")
_CLAIMS, _LOG = 0, 1


class SharedMemory:
    """Rows of: name (two words), claims of each process, FIELDS cells of each process.

    rows: how many. Forked processes call ``become`` before anything else.
    """

    def __init__(self, processes: int, rows: int = ROWS) -> None:
        self.process = 0
        self.processes = processes
        self.rows = rows
        self._width = 2 + processes * (1 + FIELDS)
        size = 8 * rows * self._width
        self._file = os.memfd_create("headrace-router", os.MFD_CLOEXEC)
        os.ftruncate(self._file, size)
        self._map = mmap.mmap(self._file, size)
        self.numbers = memoryview(self._map).cast("q")
        # Rows are let go where objects die, in whatever thread.
        self._threads = threading.RLock()
        self._told = False

    def become(self, process: int) -> None:
        """This process is the router's process of that number."""
        self.process = process

    def claim(self, key: str) -> int:
        """The index of the first cell of the row that all processes have for ``key``; -1 if there is none left."""
        name = _NAME.unpack(blake2b(key.encode(), digest_size=16).digest())
        with self._threads, self._lock(_CLAIMS, PATIENCE) as locked:
            at = self._find(name) if locked else -1
            if at >= 0:
                self.numbers[at], self.numbers[at + 1] = name
                self.numbers[at + 2 + self.process] += 1
        if at < 0:
            if not self._told:
                log.warning("no shared count left for %s: this process counts it alone", key)
            self._told = True
            return -1
        return at + 2 + self.processes

    def release(self, row: int) -> None:
        """One claim less; a row that nobody claims is another's."""
        with self._threads:
            self.numbers[row - self.processes + self.process] -= 1

    def clear(self, process: int) -> None:
        """That process has ended, whichever way: nothing is in flight there, and nothing wanted."""
        for at in range(0, self.rows * self._width, self._width):
            if not self.numbers[at] and not self.numbers[at + 1]:
                continue
            self.numbers[at + 2 + process] = 0
            cell = at + 2 + self.processes + process
            for field in (IN_FLIGHT, WANTS_SINCE, WANTED_AT):
                self.numbers[cell + field * self.processes] = 0
            # What it held is free, and others may have been refused for it.
            self.numbers[cell + RETURNED * self.processes] += 1

    @contextlib.contextmanager
    def log_turn(self) -> Iterator[None]:
        """Held by the process that writes the access log."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _LOG)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _LOG)

    def _find(self, name: tuple[int, int]) -> int:
        """Where the row of that name begins or can begin; -1: nowhere near."""
        free = -1
        for probe in range(PROBES):
            at = (name[0] + probe) % self.rows * self._width
            there = (self.numbers[at], self.numbers[at + 1])
            if there == name:
                return at
            unused = there == (0, 0)
            if free < 0 and (unused or not any(self.numbers[at + 2 : at + 2 + self.processes])):
                free = at
            if unused:
                break
        return free

    @contextlib.contextmanager
    def _lock(self, place: int, seconds: float) -> Iterator[bool]:
        end = time.monotonic() + seconds
        locked = False
        while not locked:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                locked = True
            except OSError:
                if time.monotonic() >= end:
                    break
                time.sleep(0.0005)
        try:
            yield locked
        finally:
            if locked:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)


class LogTurn(contextlib.AbstractContextManager[None]):
    """``SharedMemory.log_turn``, to be entered again and again."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._held = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._held.enter_context(self._memory.log_turn())

    def __exit__(self, *_: object) -> None:
        self._held.close()
