"""What every exchange of a process works with.

Beside the request path: made once. Holds references and nothing of a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from headrace_api import names
from headrace_api.table import TableEngine
from headrace_router.core.selection import Selector
from headrace_router.http1.lines import made
from headrace_router.http1.request_head import RequestHead
from headrace_router.proxy.answer import Answer
from headrace_router.proxy.clock import Deadlines
from headrace_router.proxy.known import Known
from headrace_router.proxy.memory import BodyMemory
from headrace_router.proxy.refusals import Refusal
from headrace_router.proxy.seen import Seen
from headrace_router.proxy.waiting import Waiting
from headrace_router.telemetry.accounting import Ledger
from headrace_router.upstream.port import UpstreamPool


class Keys(Protocol):
    """The clients' keys."""

    def who(self, head: RequestHead) -> str | Refusal:
        """Whose key a request shows, or why it is refused."""


class Credentials(Protocol):
    """The router's own keys at engines."""

    def authorization(self, engine: TableEngine) -> bytes | None:
        """The header line to present, None where the engine wants none.

        Raises:
            NotSent: the engine wants a key that isn't there.
        """


class Means:
    """See the module. ``time``: the loop's clock. ``current``: what ``known`` said last."""

    __slots__ = (
        "_idle",
        "credentials",
        "current",
        "deadlines",
        "keys",
        "ledger",
        "loop",
        "memory",
        "pool",
        "selector",
        "time",
        "waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        selector: Selector,
        pool: UpstreamPool,
        waiting: Waiting,
        ledger: Ledger,
        memory: BodyMemory,
        *,
        keys: Keys | None,
        credentials: Credentials | None,
    ) -> None:
        self.loop = loop
        self.time: Callable[[], float] = loop.time
        self.selector = selector
        self.pool = pool
        self.waiting = waiting
        self.ledger = ledger
        self.memory = memory
        self.keys = keys
        self.credentials = credentials
        self.deadlines = Deadlines(loop)
        self._idle: asyncio.Event | None = None
        self.current = Known(selector.view)

    def known(self) -> Known:
        """What the view in force says to every request."""
        known = self.current
        if known.view is not self.selector.view:
            known = self.current = Known(self.selector.view)
        return known

    def refuse(
        self, answer: Answer, refusal: Refusal, request_id: str, anthropic: bool, attempts: int | None = None
    ) -> None:
        """Answer by a refusal, and count it. ``attempts``: None where no attempt can have been made.

        Raises:
            ConnectionError: the client has left.
        """
        self.ledger.metrics.refused[(refusal.code,)].inc()
        lines = refusal.lines() + made(names.HEADER_REQUEST_ID, request_id).raw
        if attempts is not None:
            lines += made(names.HEADER_ATTEMPTS, str(attempts)).raw
        answer.whole(refusal.status, refusal.phrase, lines, refusal.body(anthropic=anthropic))

    def ended(self, seen: Seen | None, answer: Answer) -> None:
        """A request has ended: who looks at requests from outside is told, and who waits for an engine."""
        if seen is not None:
            seen.ended(answer)
        if self.waiting.count:
            self.waiting.wake()
        if self._idle is not None and not self.deadlines.items:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no exchange runs."""
        self._idle = self._idle or asyncio.Event()
        while self.deadlines.items:
            self._idle.clear()
            await self._idle.wait()
