"""The open-loop client: every request is sent at its own time, never later because another one is slow.

On the request path, as a client. Bounded three ways: requests in flight, seconds a request, seconds after the last
arrival. What could not be sent or did not keep its time is recorded, so that a tired machine can't pass for a fast
router. It retries nothing: what the router does not save is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import aiohttp
import msgspec

from headrace_api.names import HEADER_ENGINE, HEADER_REASON, HEADER_TABLE
from headrace_lab.engine.prompts import prompt_text
from headrace_lab.replay.events import EventReader, error_of
from headrace_lab.replay.outcome import Answer, Outcome, Result, classify
from headrace_lab.workload.requests import BATCH, Request

FRONTEND_HEADER = "x-lab-frontend"  # the simulated engines read the caller's region from it (network emulation)
SESSION_HEADER = "x-session-id"
HEADER_ATTEMPTS = "x-headrace-attempts"
PRIORITY_HEADER = "x-headrace-priority"
MAX_ERROR_BODY = 64 * 1024


class ReplayLimits(NamedTuple):
    """Bounds: requests in flight, seconds until the first byte, seconds a request, seconds after the last arrival."""

    in_flight: int = 4000
    first_byte: float = 60.0
    request: float = 120.0
    drain: float = 30.0


DEFAULT_LIMITS = ReplayLimits()


class ReplayTarget(NamedTuple):
    """Where to send: router address by front-end, the model's name, tokens of a prompt block, the policy's attempts."""

    urls: Mapping[str, str]
    model: str
    block_tokens: int
    max_attempts: int = 3


class Replay:
    """Sends ``requests`` once.

    ``on_outcome`` is called as each ends, ``on_answer(front-end, engine)`` as an answer begins.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        target: ReplayTarget,
        on_outcome: Callable[[Outcome], None],
        limits: ReplayLimits = DEFAULT_LIMITS,
        on_answer: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        self._requests = requests
        self._on_answer = on_answer
        self._target = target
        self._on_outcome = on_outcome
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent = 0

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet ended."""
        return len(self._tasks)

    async def run(self, started: float) -> None:
        """Send everything; ``started`` is the loop's time at the run's second 0. Returns when all have ended."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        timeout = aiohttp.ClientTimeout(total=self._limits.request)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            try:
                await self._send_all(session, started)
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=self._limits.drain)
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send_all(self, session: aiohttp.ClientSession, started: float) -> None:
        loop = asyncio.get_running_loop()
        for request in self._requests:
            wait = started + request.at - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            late = max(0.0, loop.time() - started - request.at)
            if len(self._tasks) >= self._limits.in_flight:
                limit = f"{self._limits.in_flight} requests are in flight already"
                self._report(request, late, result=Result.NOT_SENT, detail=limit)
                continue
            self.sent += 1
            task = loop.create_task(self._one(session, request, late))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _report(self, request: Request, late: float, **fields: object) -> None:
        known = {"at": request.at, "frontend": request.frontend, "priority": request.priority}
        self._on_outcome(Outcome(**{**known, "session": request.session, "late": late, **fields}))  # type: ignore[arg-type]

    async def _one(self, session: aiohttp.ClientSession, request: Request, late: float) -> None:
        exchange = _Exchange(asyncio.get_running_loop(), self._on_answer)
        try:
            await exchange.run(session, request, self._target, self._limits)
        except asyncio.CancelledError:
            exchange.timed_out, exchange.detail = True, "unfinished at the end of the replay"
            self._report(request, late, **exchange.fields(self._target))
            raise
        except TimeoutError:
            exchange.timed_out, exchange.detail = True, "the client's own limit in time"
        except (aiohttp.ClientError, OSError) as error:
            exchange.detail = f"{type(error).__name__}: {error}"
        self._report(request, late, **exchange.fields(self._target))


class _Exchange:
    """One request and what was seen of its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_answer: Callable[[str, str], object]) -> None:
        self._loop = loop
        self._on_answer = on_answer
        self._began = loop.time()
        self._events = EventReader()
        self._head: Mapping[str, str] = {}
        self._status = 0
        self._body_begun = False
        self._code = ""
        self._ttft: float | None = None
        self._ended = False
        self.timed_out = False
        self.detail = ""

    async def run(
        self, session: aiohttp.ClientSession, request: Request, target: ReplayTarget, limits: ReplayLimits
    ) -> None:
        """Send it and read the answer to its end."""
        url = f"{target.urls[request.frontend]}/v1/chat/completions"
        async with asyncio.timeout(limits.first_byte) as first_byte:
            async with session.post(url, data=body_of(request, target), headers=headers_of(request)) as answer:
                self._status, self._head = answer.status, answer.headers
                if answer.status != 200:
                    self._code, self.detail = error_of(await answer.content.read(MAX_ERROR_BODY))
                    return
                self._on_answer(request.frontend, self._head.get(HEADER_ENGINE, ""))
                async for data in answer.content.iter_any():
                    if not self._body_begun:
                        self._body_begun = True
                        first_byte.reschedule(None)
                    self._take(data)
                self._ended = True

    def _take(self, data: bytes) -> None:
        self._events.feed(data)
        if self._ttft is None and self._events.content:
            self._ttft = self._loop.time() - self._began

    def fields(self, target: ReplayTarget) -> dict[str, object]:
        """The outcome's fields that the answer decides."""
        complete = self._ended and self._events.done and not self._events.error
        attempts = _number(self._head.get(HEADER_ATTEMPTS, ""), unknown=0)
        answer = Answer(
            self._status, self._body_begun, complete, self._code, self.timed_out, attempts, target.max_attempts
        )
        return {
            "result": classify(answer),
            "status": self._status,
            "ttft": self._ttft,
            "duration": self._loop.time() - self._began,
            "engine": self._head.get(HEADER_ENGINE, ""),
            "reason": self._head.get(HEADER_REASON, ""),
            "revision": _number(self._head.get(HEADER_TABLE, ""), unknown=-1),
            "attempts": attempts,
            "code": self._code,
            "detail": self._events.error or self.detail,
        }


def body_of(request: Request, target: ReplayTarget) -> bytes:
    """The request as a streaming chat completion; the prompt's text is made from its block ids.

    Only batch work asks for its usage, as jobs do that are billed: routers have to learn the others' tokens from it.
    """
    prompt = prompt_text(request.blocks, request.input_tokens, block_tokens=target.block_tokens)
    body: dict[str, object] = {
        "model": target.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": request.output_tokens,
        "stream": True,
    }
    if request.priority == BATCH:
        body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body)


def headers_of(request: Request) -> dict[str, str]:
    """The request's headers: its conversation if it has one, its priority, and where it comes from."""
    headers = {
        "content-type": "application/json",
        PRIORITY_HEADER: request.priority,
        FRONTEND_HEADER: request.frontend,
    }
    return headers | {SESSION_HEADER: request.session} if request.session else headers


def _number(header: str, *, unknown: int) -> int:
    """The whole number in a header."""
    return int(header) if header.isdecimal() else unknown
