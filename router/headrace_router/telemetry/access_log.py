"""The JSON access log, which is off by default: one line a request, on a descriptor that may be slow, full or gone.

Beside the request path: a request costs the making of its line; a thread does the writing, so that a pipe that nobody
empties never holds up the loop. What waits is bounded, and what went beyond is counted and said. Lines are written by
JSON's rules in ASCII, so that nothing a client sends can forge one (SEC-05). Never holds bodies, credentials, queries,
or headers other than the request id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Thread
from time import time
from typing import Final

import msgspec

from headrace_router.http1.paths import shown
from headrace_router.telemetry.accounting import Account
from headrace_router.telemetry.accumulators import Counter

STDOUT: Final = 1
# Seconds that a line waits at most before it is handed over, and bytes that are handed over sooner.
FLUSH_S: Final = 0.1
BATCH: Final = 64 * 1024
# Bytes of lines that wait for their reader.
MAX_WAITING: Final = 4 * 1024 * 1024
# Seconds that the last lines get at the end.
LAST_LINES_S: Final = 1.0
_MAX_PATH: Final = 256
_MAX_METHOD: Final = 32


class Entry:
    """One request as it goes. key: the name of the client's key, where keys are in use."""

    __slots__ = (
        "account",
        "code",
        "complete",
        "key",
        "method",
        "path",
        "peer",
        "request_id",
        "seconds",
        "started",
        "status",
    )

    def __init__(self, request_id: str, method: str, target: str, peer: str | None, started: float) -> None:
        self.request_id = request_id
        self.method = method[:_MAX_METHOD]
        self.path = shown(target)[:_MAX_PATH]
        self.peer = peer
        self.started = started
        self.key: str | None = None
        self.account: Account | None = None
        self.code: str | None = None
        self.status = 0
        self.complete = False
        self.seconds = 0.0

    def ended(self, status: int, *, complete: bool, at: float) -> None:
        """The request ended; ``at``: monotonic seconds, as ``started``."""
        self.status = status
        self.complete = complete
        self.seconds = at - self.started


class _Line(msgspec.Struct, rename="camel"):
    time: float
    request_id: str
    remote: str | None
    key: str | None
    method: str
    path: str
    status: int
    complete: bool
    seconds: float
    code: str | None
    model: str | None = None
    priority: str | None = None
    engine: str | None = None
    attempts: int = 0
    outcome: str | None = None


_ENCODE: Final = msgspec.json.Encoder().encode


def line_of(entry: Entry, now: float) -> bytes:
    """The line of a request that ended; ``now``: seconds since 1970."""
    account = entry.account
    line = _Line(
        round(now, 3),
        entry.request_id,
        entry.peer,
        entry.key,
        entry.method,
        entry.path,
        entry.status,
        entry.complete,
        round(entry.seconds, 6),
        entry.code,
    )
    if account is not None:
        line.model = account.model
        line.priority = account.priority
        line.engine = account.engine
        line.attempts = account.attempts
        line.outcome = account.outcome
    with contextlib.suppress(UnicodeEncodeError):
        text = _ENCODE(line)
        # Some readers take U+0085 or U+2028 for the end of a line.
        if text.isascii():
            return text + b"\n"
    return json.dumps(msgspec.structs.asdict(line), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


class AccessLog:
    """Writes lines to a descriptor. To be made inside a running loop.

    Args:
        descriptor: where to; stays the caller's.
        dropped: counts the lines that were not written.
        turn: entered for each batch, where several processes write to the descriptor: a pipe takes large writes apart.
    """

    def __init__(self, descriptor: int, dropped: Counter, turn: AbstractContextManager[None] | None = None) -> None:
        self._turn = turn if turn is not None else contextlib.nullcontext()
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._dropped = dropped
        self._lines: list[bytes] = []
        self._size = 0
        self._missed = 0
        # Handed over by the loop, and done by the thread: each is written by one of them only.
        self._given = 0
        self._done = 0
        self._lost = 0
        self._lost_counted = 0
        self._batches: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="access log", daemon=True)
        self._thread.start()

    def write(self, entry: Entry) -> None:
        """Log a request that ended; never waits."""
        line = line_of(entry, time())
        if self._size + self._given - self._done + len(line) > MAX_WAITING:
            self._missed += 1
            self._dropped.value += 1
            return
        if self._missed:
            line = b'{"time":%.3f,"dropped":%d}\n' % (time(), self._missed) + line
            self._missed = 0
        if not self._lines:
            self._loop.call_later(FLUSH_S, self.flush)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand over what there is."""
        if self._lines:
            batch = b"".join(self._lines)
            self._lines.clear()
            self._size = 0
            self._given += len(batch)
            self._batches.put(batch)
        lost = self._lost
        self._dropped.value += lost - self._lost_counted
        self._lost_counted = lost

    async def close(self) -> None:
        """Write the last lines, as far as their reader takes them in LAST_LINES_S."""
        self.flush()
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join, LAST_LINES_S)
        self.flush()

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            left = memoryview(batch)
            try:
                with self._turn:
                    while left:
                        left = left[os.write(self._descriptor, left) :]
            except OSError:
                # Whoever read the log is gone, or the disk is full: no reason to fail requests.
                self._lost += bytes(left).count(b"\n")
            self._done += len(batch)
