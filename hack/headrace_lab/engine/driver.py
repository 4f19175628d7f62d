"""Drives one step loop in real time: the thin shell between the pure core and HTTP handlers.

On the request path of a simulated engine; runs on the event loop's thread only. Steps are booked at their nominal
ends, however late the timer fires, so that a busy machine delays tokens but doesn't slow the engine down. It
never touches a socket: a request's tokens go into its mailbox, from which a handler takes them.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from headrace_lab.engine.contract import Admission, EngineConfig, Progress, Request
from headrace_lab.engine.metrics import EngineMetrics
from headrace_lab.engine.steploop import StepLoop


class Mailbox:
    """The tokens of one request on their way to its handler, ``delay`` seconds after the engine made them."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._items: deque[Progress] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, progress: Progress) -> None:
        """Deliver one token."""
        self._items.append(progress)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Progress]:
        """All tokens that are due by now, in order; waits for the first."""
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._delay:
            await asyncio.sleep(self._items[0].at + self._delay - monotonic())
        due = [self._items.popleft()]
        while self._items and self._items[0].at + self._delay <= monotonic():
            due.append(self._items.popleft())
        return due


@dataclass
class _Live:
    """A request that runs: where its tokens go, and every how many. 0: only the last one matters."""

    mailbox: Mailbox
    every: int
    arrived: float
    prompt_tokens: int
    reason: str


class Driver:
    """One engine's life from start to death; a revived engine gets a new one."""

    def __init__(self, config: EngineConfig, model: str, seed: int) -> None:
        self.core = StepLoop(config, seed)
        self.metrics = EngineMetrics(self.core, model)
        self._loop = asyncio.get_running_loop()
        self._live: dict[int, _Live] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed: float | None = None
        self._closed = False
        self._numbers = 0

    def submit(
        self, tokens: tuple[int, int], prefix: tuple[bytes, ...], reason: str, mailbox: Mailbox, every: int
    ) -> int | Admission:
        """Queue a request of ``tokens`` (prompt, output); its number, or why it isn't queued.

        The first token, then every ``every``-th and the last are put into the mailbox; ``reason`` is its finish reason.
        """
        self._numbers += 1
        now = monotonic()
        admission = self.core.submit(Request(self._numbers, *tokens, prefix), now)
        if admission is Admission.FAILED:
            self.metrics.ended["error"] += 1
        if admission is not Admission.QUEUED:
            return admission
        self._live[self._numbers] = _Live(mailbox, every, now, tokens[0], reason)
        self._arm()
        return self._numbers

    def abort(self, number: int) -> None:
        """Stop a request's work at once; nothing if it ended already, be it in a step that nobody was told of yet."""
        if self._closed or number not in self._live:
            return
        if self.core.abort(number, monotonic()):
            del self._live[number]
            self.metrics.ended["abort"] += 1
        self._arm()

    def change(self, act: Callable[[StepLoop, float], None]) -> None:
        """Let ``act`` change the core's state at this moment."""
        act(self.core, monotonic())
        self._arm()

    def close(self) -> None:
        """Die: no step runs any more, no token is delivered."""
        self._closed = True
        self._live.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """Have one timer, for the core's next event; whole milliseconds, rounded up, as uvloop counts no finer."""
        event = None if self._closed else self.core.next_event_time()
        if event == self._armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = event
        self._timer = None
        if event is not None:
            delay = math.ceil(max(0.0, event - monotonic()) * 1e3) / 1e3
            self._timer = self._loop.call_later(delay, self._run)

    def _run(self) -> None:
        self._armed = None
        for progress in self.core.advance(monotonic()):
            self.metrics.record(progress)
            live = self._live[progress.id]
            if progress.finished:
                del self._live[progress.id]
                self.metrics.finish(live.reason, progress.at - live.arrived, live.prompt_tokens, progress.generated)
                live.mailbox.put(progress)
            elif live.every and (progress.generated - 1) % live.every == 0:
                live.mailbox.put(progress)
        self._arm()
