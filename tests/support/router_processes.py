"""Routers of several processes: who they are, and how a test decides which of them takes a connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.fake_engine import EVENT, Exchange, FakeEngine
from support.raw_client import RawClient
from support.router_process import Process, ready, router_process, until_async
from support.router_table import EngineAt, routing_table, table_bytes


@dataclass
class Holding:
    """An engine's script: holds each request until it is told to let go, and counts how many it holds."""

    now: int = 0
    most: int = 0
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.let_go.wait()
        finally:
            self.now -= 1
        await exchange.answer()


@dataclass
class Streaming:
    """Streams that go on until they are told to end."""

    end: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        ends = {asyncio.create_task(self.end.wait()), asyncio.create_task(exchange.reader.read())}
        _, left = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if not self.end.is_set():
            exchange.close()
            return
        await exchange.chunk(EVENT)
        await exchange.end_chunks()


@contextlib.asynccontextmanager
async def started(
    tmp_path: Path, engine: FakeEngine, *more: str, limit: int = 0, **table: Any
) -> AsyncIterator[Process]:
    """Two workers before one engine."""
    path = tmp_path / "t.json"
    path.write_bytes(table_bytes(routing_table({"a": EngineAt((engine.url,), limit=limit)}, **table)))
    arguments = ("--table", str(path), "--processes", "2", "--drain-delay", "0", *more)
    async with router_process(*arguments) as router:
        await until_ready(router)
        yield router


async def details(router: Process) -> list[dict[str, Any]]:
    """What readiness says of each process, by number."""
    found: list[dict[str, Any]] = (await ready(router.admin))[1]["processes"]
    return found


async def pids(router: Process) -> list[int]:
    """The workers' pids, once all are there."""

    async def all_there() -> bool:
        return all("pid" in detail for detail in await details(router))

    await until_async(all_there)
    return [detail["pid"] for detail in await details(router)]


async def until_ready(router: Process) -> None:
    """Wait until readiness is 200."""

    async def is_ready() -> bool:
        return (await ready(router.admin))[0] == 200

    await until_async(is_ready)


@contextlib.contextmanager
def stopped(*processes: int) -> Iterator[None]:
    """These hang meanwhile."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def connected(
    router: Process, workers: list[int], to: int, count: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[RawClient]]:
    """``count`` connections that worker ``to`` has accepted and no other."""
    async with contextlib.AsyncExitStack() as stack:
        with stopped(*(pid for number, pid in enumerate(workers) if number != to)):
            before = sockets(workers[to])
            clients = [await stack.enter_async_context(RawClient(router.url, tls)) for _ in range(count)]

            async def accepted() -> bool:
                return sockets(workers[to]) >= before + count

            await until_async(accepted)
        yield clients


def sockets(pid: int) -> int:
    """Sockets that a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith("socket:")
    return count


def children(pid: int) -> list[int]:
    """Processes that this one started and that live."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
