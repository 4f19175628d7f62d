"""Routers for tests: one in the test's own loop, or a real process."""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headrace_api.table import RoutingTable
from headrace_router.server.server import Router, Settings
from headrace_router.tables.tables_from import TablesFrom
from support.raw_client import get
from support.router_table import table_bytes

SERVING = re.compile(r"headrace router: serving on ([^\s,]+), admin ([^\s,]+)")


@asynccontextmanager
async def router_in_loop(
    path: Path, table: RoutingTable | None = None, *, more: tuple[Path, ...] = (), **settings: Any
) -> AsyncIterator[Router]:
    """A router on free ports that reads ``path`` (and ``more``); ``table`` is written there first."""
    if table is not None:
        path.write_bytes(table_bytes(table))  # noqa: ASYNC240
    settings = {"drain_delay": 0.0, "grace": 0.0, "listen": ("127.0.0.1", 0)} | settings
    router = Router(Settings(TablesFrom((path, *more)), admin=("127.0.0.1", 0), **settings))
    await router.start()
    try:
        yield router
    finally:
        await router.stop()


def in_flight(router: Router) -> int:
    """Requests in flight over all engines in force."""
    return sum(count for _, _, count in router.selector.in_flight())


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a plain condition, with a bound."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        await asyncio.sleep(0.01)


async def until_async(
    condition: Callable[[], Awaitable[bool]],
    seconds: float = 30.0,
    why: Callable[[], str] = lambda: "the condition did not come true",
) -> None:
    """The same for a condition that has to ask. ``why``: what is said when it has not come true."""
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, why()
        await asyncio.sleep(0.01)


async def metric(admin: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels on a metrics page."""
    page = (await get(admin, "/metrics")).body.decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def reads(expected: float, admin: str, name: str, **labels: str) -> None:
    """Wait until the metric reads so: what a test saw first (an answer, a span) may be counted after it."""
    found = math.nan

    async def so() -> bool:
        nonlocal found
        found = await metric(admin, name, **labels)
        return found == expected

    await until_async(so, why=lambda: f"{name} {labels} is {found:g}, expected {expected:g}")


async def ready(admin: str) -> tuple[int, dict[str, Any]]:
    """Status and detail of /readyz."""
    answer = await get(admin, "/readyz")
    return answer.status, json.loads(answer.body)


@dataclass
class Process:
    """A real router process."""

    process: asyncio.subprocess.Process
    url: str
    admin: str
    said: list[str]
    _reading: asyncio.Task[None]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def exit_code(self, seconds: float = 30.0) -> int:
        async with asyncio.timeout(seconds):
            code = await self.process.wait()
            await self._reading
            return code


@asynccontextmanager
async def router_process(
    *arguments: str, stdout: Any = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """``headrace router`` with free ports; killed at the end if it still runs. env: none is this process's."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headrace_cli.main",
        "router",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        *arguments,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    said: list[str] = []
    found: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            said.append(line.decode())
            match = SERVING.search(said[-1])
            if match and not found.done():
                found.set_result((match[1], match[2]))
        if not found.done():
            found.set_exception(AssertionError(f"the router did not start: {said}"))

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(60):
            url, admin = await found
        yield Process(process, url, admin, said, reading)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading
