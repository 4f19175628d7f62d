"""Routers that are rolled under load: no request is cut within the grace, none is refused while a replica is there."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.fake_engine import EVENT, Exchange, FakeEngine
from support.raw_client import RawClient, ask, post
from support.router_process import Process, ready, router_process, until
from support.router_table import routing_table, table_bytes

CLIENTS = 12
DRAIN = ("--drain-delay", "1.5", "--grace", "20")


async def engine_script(exchange: Exchange) -> None:
    """Half of the answers are streams that take a while."""
    if exchange.number % 2:
        await exchange.answer()
        return
    await exchange.start_sse()
    for _ in range(5):
        await exchange.chunk(EVENT)
        await asyncio.sleep(0.02)
    await exchange.end_chunks()


class Balancer:
    """Sends to the replicas that say they are ready, as a Service does: a little late."""

    def __init__(self) -> None:
        self.replicas: list[Process] = []
        self.ready: list[Process] = []
        self._turn = itertools.count()

    async def look(self) -> None:
        while True:
            found = []
            for replica in list(self.replicas):
                try:
                    if (await ready(replica.admin))[0] == 200:
                        found.append(replica)
                except OSError:
                    pass
            self.ready = found
            await asyncio.sleep(0.1)

    def next(self) -> Process:
        return self.ready[next(self._turn) % len(self.ready)]


async def use(balancer: Balancer, stop: asyncio.Event, counts: Counter[str], number: int) -> None:
    """One client: keeps a connection until it is told that it closes, or (every third) makes one for each request.

    It sends in two writes, so that heads and bodies are under way at every moment of a drain.
    """
    data = post({"model": "m", "stream": True})
    middle = len(data) - 7 if number % 2 else 40
    while not stop.is_set():
        url = balancer.next().url
        async with RawClient(url) as client:
            kept = True
            while kept and not stop.is_set():
                await client.send(data[:middle])
                await asyncio.sleep(0.005)
                await client.send(data[middle:])
                answer = await client.answer()
                counts["whole" if answer.status == 200 and answer.complete else f"{answer.status} {answer.body!r}"] += 1
                kept = answer.header("Connection") != "close" and number % 3 > 0


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_two_replicas_are_rolled_and_no_request_is_lost(tmp_path: Path, processes: int) -> None:
    """Issue 5, SIGTERM under load; SHU-01 (https://github.com/gajus/http-terminator/issues/22): a client that keeps its
    connection hears that it closes and moves on before it does."""
    path = tmp_path / "t.json"
    arguments = ("--table", str(path), "--processes", str(processes), *DRAIN)
    counts: Counter[str] = Counter()
    balancer, stop = Balancer(), asyncio.Event()
    async with FakeEngine(engine_script) as engine, AsyncExitStack() as stack:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        for _ in range(2):
            balancer.replicas.append(await stack.enter_async_context(router_process(*arguments)))
        looking = asyncio.create_task(balancer.look())
        await until(lambda: len(balancer.ready) == 2, 60)
        using = [asyncio.create_task(use(balancer, stop, counts, number)) for number in range(CLIENTS)]
        for old in list(balancer.replicas):
            begun = counts["whole"]
            while counts["whole"] < begun + 5 * CLIENTS:
                assert not any(task.done() for task in using), await asyncio.gather(*using)
                await asyncio.sleep(0.01)
            balancer.replicas.append(await stack.enter_async_context(router_process(*arguments)))
            old.terminate()
            assert await old.exit_code() == 0
            balancer.replicas.remove(old)
            assert not any("Traceback" in line or "destroyed" in line for line in old.said)
        stop.set()
        await asyncio.gather(*using)
        looking.cancel()
    assert set(counts) == {"whole"}


async def test_what_comes_slowly_during_a_drain_is_served(tmp_path: Path) -> None:
    """A head, and a body, of which the first bytes came before the listener closed, and the last long after."""
    path = tmp_path / "t.json"
    data = post({"model": "m"})
    async with FakeEngine(engine_script) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        async with (
            router_process("--table", str(path), "--drain-delay", "0.5", "--grace", "20") as router,
            RawClient(router.url) as head,
            RawClient(router.url) as body,
            RawClient(router.url) as kept,
        ):
            await kept.send(data)
            assert (await kept.answer()).status == 200
            await head.send(data[:30])
            await body.send(data[:-3])
            await kept.send(data[:10])
            assert (await ask(router.url, data)).status == 200
            router.terminate()
            closed = False
            while not closed:
                try:
                    await ask(router.url, data)
                except ConnectionError:
                    closed = True
            for client, sent in ((head, 30), (body, len(data) - 3), (kept, 10)):
                await client.send(data[sent:])
                answer = await client.answer()
                assert (answer.status, answer.header("Connection")) == (200, "close")
            assert await router.exit_code() == 0
