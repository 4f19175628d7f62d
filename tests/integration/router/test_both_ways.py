"""The hot route and aiohttp's side differ in nothing: the same bytes to engines, the same bytes to clients.

One router, two listeners: one as it serves, one through whose aiohttp side everything goes. Each example is a
connection with a few requests, well-formed and not, some with bytes changed, cut into reads at random, answered by an
engine in every framing and cut short now and then. Masked are ids that the router makes up, and what a malformed head
is blamed for: of two faults the one that shows first, which depends on how the reads fall.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_api.table import TableEjection, TableRetry
from headrace_router.listener.limits import Limits
from headrace_router.listener.listener import Listener
from support.any_connection import any_connection
from support.examples import examples
from support.raw_client import RawClient
from support.router_process import in_flight, router_in_loop
from support.router_table import routing_table
from support.scripted_engine import ScriptedEngine

MADE_UP = re.compile(rb"(?i)(x-request-id: )[0-9a-f]{32}")
BLAMED = re.compile(
    rb"(HTTP/1\.1 400 Bad Request\r\n(?:[\w-]+: [^\r\n]*\r\n)*?Content-Length: )\d+"
    rb"((?:\r\n[\w-]+: [^\r\n]*)*\r\n\r\n\{\"error\":\{\"message\":\")[^\"]*"
)
Bytes = tuple[bytes, list[bytes]]


class Sides:
    """The router with its two ways in. ``served``: requests that came to the engine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = ScriptedEngine()
        self.urls: tuple[str, str] = ("", "")
        self.connections = self.served = self.refused = 0
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        await self.engine.start()
        self._stack.callback(self.engine.stop)
        table = routing_table(
            {"a": self.engine.url},
            # What one request met must not change what the next one meets.
            ejection=TableEjection(consecutive=10**6),
            retry=TableRetry(percent=100.0, min_per_second=10_000.0),
            paths=("/v1/rerank",),
        )
        # What is swallowed by a wrong length ends by these.
        limits = Limits(head_seconds=0.5, body_idle=0.5, idle=0.5)
        self.router = await self._stack.enter_async_context(router_in_loop(self.path / "t", table, limits=limits))
        slow = Listener(self.router.proxy, limits, hot=False)
        server = await asyncio.get_running_loop().create_server(slow, "127.0.0.1", 0)
        self._stack.push_async_callback(slow.shutdown, 0.5)
        self._stack.callback(server.close)
        self.urls = (self.router.address, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async def stop(self) -> None:
        await self._stack.aclose()

    async def ask(self, url: str, reads: tuple[bytes, ...]) -> Bytes:
        """What client and engine get, with made-up ids masked."""
        self.engine.requests.clear()
        async with RawClient(url) as client:
            try:
                for read in reads:
                    await client.send(read)
                    await asyncio.sleep(0)
            except ConnectionError:
                pass
            said = await client.to_end()
        return BLAMED.sub(rb"\1-\2-", MADE_UP.sub(rb"\1-", said)), [
            MADE_UP.sub(rb"\1-", each) for each in self.engine.requests
        ]

    async def both(self, seed: int) -> tuple[Bytes, Bytes]:
        example = any_connection(seed)
        self.engine.scripts = example.scripts
        hot, slow = self.urls
        return await self.ask(hot, example.reads), await self.ask(slow, example.reads)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as made:
        yield made


@pytest.fixture(scope="module")
def sides(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    made = Sides(tmp_path_factory.mktemp("both"))
    runner.run(made.start())
    yield made
    runner.run(made.stop())
    # Neither all nor nothing of it came to the engine.
    assert made.served > made.connections
    assert made.refused > made.connections / 10


@settings(max_examples=examples(600), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**40))
def test_both_ways_say_the_same(runner: asyncio.Runner, sides: Sides, seed: int) -> None:
    """Issue 5, Must show: thousands of generated requests, same upstream bytes, same client bytes."""
    (to_client, to_engine), (to_client_too, to_engine_too) = runner.run(sides.both(seed))
    sides.connections += 1
    sides.served += len(to_engine)
    sides.refused += len(re.findall(rb"HTTP/1\.1 4\d\d ", to_client))
    assert to_client == to_client_too
    assert to_engine == to_engine_too
    assert in_flight(sides.router) == 0
    assert sides.router.proxy.memory.held == 0
