"""The scrape: reads every engine's and router's own ``/metrics`` over HTTP, each target in a task of its own.

On the engine-signal path. A hung target delays nobody: it has its own task and time-out, and a target that timed out
waits in a slow lane, so that many of them can't fill the places of those that answer. Pages are bounded, redirects
are not followed (a login page elsewhere is no metrics page), no credentials are sent, link-local addresses not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import aiohttp
from aiohttp.abc import ResolveResult

from headrace_api.urls import is_anybodys
from headrace_operator.estimators.liveness import Outcome
from headrace_operator.loader.pages import engine_page, router_page
from headrace_operator.loader.source import EngineTarget, PageTarget, RouterTarget, ScrapeSettings, TargetSample

log = logging.getLogger(__name__)

MAX_KEPT: Final = 100_000  # attempts kept for a reader that does not come
MAX_WAKES: Final = 100  # refused connects that are counted towards a death; after that it is no news
SLOW_LANES: Final = 8  # one in so many places is for targets that timed out


class Scraper:
    """Implements SignalSource on the targets' own pages; create and use it inside one event loop."""

    def __init__(
        self,
        settings: ScrapeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        follow: bool = True,
    ) -> None:
        """clock: steady seconds that samples are stamped with. follow: read on and on, not only when asked to."""
        self._clock = clock
        self.on_change: Callable[[], None] = lambda: None
        self._samples: deque[TargetSample] = deque(maxlen=MAX_KEPT)
        self._follows = follow
        self._targets: tuple[PageTarget, ...] = ()
        self._tasks: dict[PageTarget, asyncio.Task[None]] = {}
        self._settings = settings
        self._lanes = _Lanes(settings.concurrency)
        self._session: aiohttp.ClientSession | None = None

    @property
    def targets(self) -> tuple[PageTarget, ...]:
        """What is read now."""
        return self._targets

    def configure(self, settings: ScrapeSettings) -> None:
        """New settings hold from each target's next attempt on."""
        if settings.concurrency != self._settings.concurrency:
            self._lanes = _Lanes(settings.concurrency)
        self._settings = settings

    def retarget(self, targets: Sequence[PageTarget]) -> None:
        """From now on read these and no others."""
        wanted = set(targets)
        self._targets = tuple(targets)
        for target in [target for target in self._tasks if target not in wanted]:
            self._tasks.pop(target).cancel()
        for target in targets if self._follows else ():
            if target not in self._tasks:
                self._tasks[target] = asyncio.create_task(self._follow(target), name=f"scrape {target.url}")

    async def read(self) -> Sequence[TargetSample]:
        """All attempts since the last call, oldest first; does not wait for new ones."""
        samples = list(self._samples)
        self._samples.clear()
        return samples

    async def read_once(self) -> Sequence[TargetSample]:
        """One attempt at every target, waited for: at most one time-out and the queue for places."""
        return await asyncio.gather(*(self._attempt(target, slow=False) for target in self._targets))

    async def close(self) -> None:
        """Stop reading; frees connections."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _follow(self, target: PageTarget) -> None:
        outcome: Outcome | None = None
        repeated = 0
        while True:
            started = time.monotonic()
            sample = await self._attempt(target, slow=outcome == "Failed")
            self._samples.append(sample)
            if sample.outcome != outcome:
                outcome, repeated = sample.outcome, 0
                self.on_change()
            elif outcome == "Refused" and repeated < MAX_WAKES:
                repeated += 1
                self.on_change()
            await asyncio.sleep(max(0.01, self._settings.interval - (time.monotonic() - started)))

    async def _attempt(self, target: PageTarget, *, slow: bool) -> TargetSample:
        async with self._lanes.place(slow):
            try:
                async with asyncio.timeout(self._settings.timeout):
                    return self._understood(target, *await self._fetch(target.url))
            except TimeoutError:
                return self._missed(target, "Failed", f"no answer within {self._settings.timeout:g} s")
            except aiohttp.ClientConnectorError as error:
                refused = (
                    isinstance(error.os_error, ConnectionRefusedError) or error.os_error.errno == errno.ECONNREFUSED
                )
                word = "connect refused" if refused else f"can't connect: {error.os_error.strerror or error.os_error}"
                return self._missed(target, "Refused" if refused else "Failed", word)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                return self._missed(target, "Failed", f"{type(error).__name__}: {error}")

    async def _fetch(self, url: str) -> tuple[int, bytes | None]:
        """Status and body of the page; no body when it is larger than allowed."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, resolver=_Resolver())
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        async with self._session.get(f"{url.rstrip('/')}/metrics", allow_redirects=False) as answer:
            body = bytearray()
            async for piece in answer.content.iter_chunked(65_536):
                body += piece
                if len(body) > self._settings.max_page:
                    answer.close()
                    return answer.status, None
            return answer.status, bytes(body)

    def _understood(self, target: PageTarget, status: int, body: bytes | None) -> TargetSample:
        if status != 200:
            return self._missed(target, "Answered", f"/metrics answered {status}; right would be 200")
        if body is None:
            return self._missed(target, "Answered", f"the page is larger than {self._settings.max_page} bytes")
        text = body.decode("utf-8", "replace")
        at = self._clock()
        match target:
            case EngineTarget():
                page = engine_page(text, target.names, target.models)
                return TargetSample(target, at, "Read" if page.values else "Answered", page.values, None, page.problem)
            case RouterTarget():
                counts, problem = router_page(text, target.frontend)
                return TargetSample(target, at, "Answered" if problem else "Read", {}, counts, problem)

    def _missed(self, target: PageTarget, outcome: Outcome, problem: str) -> TargetSample:
        return TargetSample(target, self._clock(), outcome, problem=problem)


class _Resolver(aiohttp.ThreadedResolver):
    """Who writes an engine may make its name say anything: it never leads to what is link-local (see is_anybodys)."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See ThreadedResolver."""
        try:
            found = await super().resolve(host, port, family)
        except UnicodeError as error:
            raise OSError(None, f"{host} is no name that can be looked up") from error
        usable = [each for each in found if not is_anybodys(each["host"])]
        if not usable:
            raise OSError(None, f"{host} has no address that an engine can have")
        return usable


class _Lanes:
    """Places for concurrent reads: most for targets that answer, a few for those that timed out."""

    def __init__(self, places: int) -> None:
        self._fast = asyncio.Semaphore(places)
        self._slow = asyncio.Semaphore(max(1, places // SLOW_LANES))

    @contextlib.asynccontextmanager
    async def place(self, slow: bool) -> AsyncIterator[None]:
        async with self._slow if slow else self._fast:
            yield
