"""A router among engines that fail in every way and clients that leave, for a minute; for a quarter of an hour by long.

Half of the engines are steady, so that no request need be lost: a client that stays gets its whole answer, unless its
engine broke off after the first body byte, which then is never taken for an end (protection.md, Retries; router.md,
Streams; STR-01, RET-04). Tables are swapped each second. At the end nothing is left: no request in flight, no exchange,
no connection, no descriptor, no task, and no more memory than after the first part.

Of several processes one is killed early on, and another later: whose connections it had may lose their answers, nobody
else (router.md, Several processes).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace_api.table import TableRetry, TableTimeouts
from support.chaos_engines import ChaosEngine
from support.raw_client import RawClient, get, read_answer
from support.router_process import metric, until_async
from support.router_table import EngineAt, routing_table, table_bytes
from support.watched import Held, Watched, watched_router

SEED = 20261130
CLIENTS = 48
STEADY, UNSTEADY = 3, 3
WAYS = ("stays", "leaves_at_once", "leaves_midway", "slow_reader", "pipelines", "half_a_body")
CHANCES = (60, 8, 12, 6, 6, 8)
# Longer than a steady engine takes on a machine that does other things too; a hung one costs a request this long.
TIMEOUTS = TableTimeouts(connect=10.0, first_byte=10.0, idle=10.0, send=30.0, unary=15.0)
# What a client waits for an answer: all of its attempts.
PATIENCE = 120.0
KILL_EVERY = 45.0


@dataclass(frozen=True)
class Connected:
    """A client's connection. since: before it was begun."""

    client: RawClient
    port: int
    since: float


@dataclass
class Clients:
    """Clients that ask until they are told to stop. ``seen``: what became of requests, by way; ``needless``: losses."""

    router: Watched
    engines: list[ChaosEngine]
    rng: Random
    seen: Counter[str] = field(default_factory=Counter)
    needless: list[str] = field(default_factory=list)
    stopping: bool = False
    _number: int = 0

    async def ask_on(self) -> None:
        while not self.stopping:
            way = self.rng.choices(WAYS, CHANCES)[0]
            self._number += 1
            token = f"t{self._number}"
            stream = self.rng.random() < 0.6
            size = self.rng.choice((0, 300, 3_000, 60_000))
            asked: dict[str, Any] = {"model": "m", "user": token, "size": size, "stream": stream}
            # What is pipelined beyond 64 KiB is not read.
            if way != "pipelines" and self.rng.random() < 0.1:
                asked["pad"] = "p" * 200_000
            try:
                async with asyncio.timeout(PATIENCE):
                    await getattr(self, f"_{way}")(self._bytes(asked), token, stream)
            except TimeoutError:
                self.needless.append(f"{way}: no end within {PATIENCE} s")
            self.seen[way] += 1

    def _bytes(self, asked: dict[str, Any]) -> bytes:
        body = json.dumps(asked).encode()
        key = f"x-session-id: s{self.rng.randrange(200)}\r\n"
        return (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n{key}"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    @asynccontextmanager
    async def _connected(self, way: str, limit: int = 2**25) -> AsyncIterator[Connected]:
        """A connection, which may be lost if a worker was killed that had it."""
        since = time.monotonic()
        async with RawClient(self.router.url, limit=limit) as client:
            made = Connected(client, client.writer.get_extra_info("sockname")[1], since)
            try:
                yield made
            except ConnectionError as error:
                self._lost(made, f"{way}: {error!r}")

    async def _stays(self, request: bytes, token: str, stream: bool) -> None:
        async with self._connected("stays") as made:
            await made.client.send(request.replace(b"Host: r\r\n", b"Host: r\r\nConnection: close\r\n", 1))
            self._judge(made, await made.client.to_end(PATIENCE), token, stream)

    async def _slow_reader(self, request: bytes, token: str, stream: bool) -> None:
        async with self._connected("slow reader", limit=2_000) as made:
            await made.client.send(request.replace(b"Host: r\r\n", b"Host: r\r\nConnection: close\r\n", 1))
            await asyncio.sleep(self.rng.uniform(0.0, 1.0))
            self._judge(made, await made.client.to_end(PATIENCE), token, stream)

    async def _leaves_at_once(self, request: bytes, _token: str, _stream: bool) -> None:
        async with self._connected("leaves at once") as made:
            await made.client.send(request)

    async def _leaves_midway(self, request: bytes, _token: str, _stream: bool) -> None:
        async with self._connected("leaves midway") as made:
            await made.client.send(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.rng.uniform(0.0, 0.3)):
                    await made.client.reader.read(self.rng.randrange(1, 2_000))

    async def _half_a_body(self, request: bytes, _token: str, _stream: bool) -> None:
        async with self._connected("half a body") as made:
            await made.client.send(request[: self.rng.randrange(1, len(request))])
            await asyncio.sleep(self.rng.uniform(0.0, 0.1))

    async def _pipelines(self, request: bytes, token: str, stream: bool) -> None:
        models = b"GET /v1/models HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"
        async with self._connected("pipelines") as made:
            await made.client.send(models.replace(b"Connection: close\r\n", b"") + request + models)
            raw = await made.client.to_end(PATIENCE)
            first, _, rest = raw.partition(b'"owned_by":"headrace"}]}')
            if not first.startswith(b"HTTP/1.1 200"):
                self._lost(made, f"pipelined: {first[:100]!r}")
                return
            end = rest.rfind(b"HTTP/1.1 200 OK\r\n")
            self._judge(made, rest[:end] if end > 0 else rest, token, stream)

    def _judge(self, made: Connected, raw: bytes, token: str, stream: bool) -> None:
        """A whole answer of one's own; or one that its engine began and broke off, and that says so."""
        begun = any(token in each.begun for each in self.engines)
        if not raw:
            # What an engine sends in one piece with its reset may never leave the router.
            self.seen["broken off"] += 1
            if not begun:
                self._lost(made, f"{token}: nothing at all, stream {stream}")
            return
        answer = read_answer(raw)
        mark = token.encode()
        whole = answer.body.count(mark) == 2 and (not stream or b"[DONE]" in answer.body)
        if answer.status != 200:
            self.needless.append(f"{token}: {answer.status} {answer.body[:200]!r}")
        elif answer.complete and not whole:
            self.needless.append(f"{token}: a clean end of half an answer: {answer.body[-200:]!r}")
        elif not answer.complete and not begun:
            self._lost(made, f"{token}: broken off by the router: {raw[-200:]!r}")
        else:
            self.seen["whole" if answer.complete else "broken off"] += 1

    def _lost(self, made: Connected, what: str) -> None:
        """Lost with a worker that was killed, or needlessly."""
        if self.router.had(made.port, made.since):
            self.seen["killed"] += 1
        else:
            self.needless.append(what)


async def swap_each_second(path: Path, engines: list[ChaosEngine], rng: Random) -> None:
    """New weights each second; now and then an engine is left out."""
    revision = 1
    while True:
        revision += 1
        left_out = rng.randrange(-6, len(engines))
        write(path, engines, revision, [0 if at == left_out else rng.randrange(1, 10) for at in range(len(engines))])
        await asyncio.sleep(1.0)


def write(path: Path, engines: list[ChaosEngine], revision: int, weights: list[int]) -> None:
    placed = [(f"e{at}", each.engine.url) for at, each in enumerate(engines)]
    table = routing_table(
        {name: EngineAt((url,), weight) for (name, url), weight in zip(placed, weights, strict=True) if weight},
        revision=revision,
        timeouts=TIMEOUTS,
        retry=TableRetry(max_attempts=10, percent=100.0, min_per_second=1e6),
    )
    new = path.with_suffix(".new")
    new.write_bytes(table_bytes(table))
    new.replace(path)


@pytest.mark.parametrize(
    ("processes", "seconds"),
    [
        pytest.param(1, 60.0, id="a minute"),
        pytest.param(2, 9.0, id="two processes"),
        pytest.param(1, 900.0, id="a quarter of an hour", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
        pytest.param(2, 300.0, id="two processes for five minutes", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.timeout(400)
async def test_nothing_is_lost_needlessly_and_nothing_is_left(tmp_path: Path, processes: int, seconds: float) -> None:
    rng = Random(SEED)
    engines = [ChaosEngine(Random(SEED + at), steady=at < STEADY) for at in range(STEADY + UNSTEADY)]
    table = tmp_path / "t.json"
    async with contextlib.AsyncExitStack() as stack:
        for each in engines:
            await stack.enter_async_context(each.engine)
        write(table, engines, 1, [1] * len(engines))
        router = await stack.enter_async_context(watched_router(table, processes))
        at_rest = await router.held()
        clients = Clients(router, engines, rng)
        killers = [asyncio.create_task(each.killed_now_and_then()) for each in engines[STEADY:]]
        swapper = asyncio.create_task(swap_each_second(table, engines, rng))
        asking = [asyncio.create_task(clients.ask_on()) for _ in range(CLIENTS)]
        began = time.monotonic()
        early: Held | None = None
        while (passed := time.monotonic() - began) < seconds and not clients.needless:
            if processes > 1 and passed > seconds / 6 + KILL_EVERY * len(router.killed):
                await router.kill(len(router.killed) % processes)
            if early is None and passed > seconds / 3:
                early = await router.held()
            await asyncio.sleep(0.2)
        clients.stopping = True
        await asyncio.gather(*asking)
        for task in (*killers, swapper):
            task.cancel()
        await asyncio.gather(*killers, swapper, return_exceptions=True)
        for each in engines[STEADY:]:
            if each.engine._server is None:
                await each.engine.start()
        fates = sum((each.fates for each in engines), Counter[str]())
        sys.stderr.write(f"clients {dict(clients.seen)}; engines {dict(fates)}\n")
        assert clients.needless == []
        assert early is not None
        if processes > 1:
            assert clients.seen["killed"] > 0
            assert await metric(router.admin, "headrace_process_restarts_total") == len(router.killed)
        await all_gone(router, at_rest, early)


async def all_gone(router: Watched, at_rest: Held, early: Held) -> None:
    """Everything that a request held was given back; connections that are kept for reuse end by themselves."""

    async def idle() -> bool:
        return bool(await metric(router.admin, "headrace_in_flight_requests") == 0)

    await until_async(idle, 60)
    # What each process believes that all of them have in flight.
    for number in range(router.processes):
        which = f"&process={number}" if router.processes > 1 else ""
        explained = (await get(router.admin, f"/debug/explain?model=m{which}")).json()
        assert set(numbers_of(explained, "inFlight")) == {0}, explained
    last: Held = {}

    async def empty() -> bool:
        nonlocal last
        last = await router.held()
        return not any(left_behind(now, at_rest[name]) for name, now in last.items())

    try:
        await until_async(empty, 60)
    except AssertionError:
        raise AssertionError(f"left behind: {last}, at rest {at_rest}") from None
    sys.stderr.write(f"held at rest {at_rest}, early {early}, at the end {last}\n")
    assert last.keys() == at_rest.keys() == early.keys()
    for name, now in last.items():
        if "resident" in now:
            assert now["resident"] < 1.2 * early[name]["resident"] + 8 * 2**20, name


def left_behind(now: dict[str, int], at_rest: dict[str, int]) -> bool:
    """Whether a process still holds what is a request's, or what it had of a worker that is gone."""
    if "tasks" not in now:
        return now["descriptors"] > at_rest["descriptors"]
    # The admin page's own connection and the prober's come and go.
    return (
        (now["exchanges"], now["clients"]) != (0, 0)
        or now["engines"] > 2
        or now["descriptors"] > at_rest["descriptors"] + 4
        or now["tasks"] > at_rest["tasks"] + 4
    )


def numbers_of(document: object, key: str) -> Iterator[object]:
    """Every value of a key, however deep."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from numbers_of(value, key)
    elif isinstance(document, list):
        for each in document:
            yield from numbers_of(each, key)
