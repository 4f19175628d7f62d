"""What clients hold while they do nothing with it: places of connections, memory of bodies. Others get it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_router.listener.limits import Limits
from headrace_router.server.access_files import AccessFiles
from headrace_router.server.server import Router
from support.certificates import Authority
from support.dripping import LARGE, LEFT, dripped, framed, most
from support.fake_engine import Exchange, FakeEngine
from support.raw_client import RawClient, ask, post
from support.router_process import metric, router_in_loop, until
from support.router_table import routing_table

ASK = post({"model": "m"})


@contextlib.asynccontextmanager
async def behind(
    path: Path, limits: Limits, tls: Authority | None = None
) -> AsyncIterator[tuple[Router, asyncio.Event]]:
    """A router with these limits, its engine answering; at ``x-wait`` when the event is set."""
    go = asyncio.Event()

    async def answers(exchange: Exchange) -> None:
        if exchange.request.values("x-wait"):
            await go.wait()
        await exchange.answer()

    access = AccessFiles() if tls is None else AccessFiles(tls=tls.issue("127.0.0.1").write(path / "tls"))
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(path / "t", routing_table({"a": engine.url}), limits=limits, access=access) as router,
    ):
        yield router, go


async def served(client: RawClient) -> bool:
    await client.send(ASK)
    return (await client.answer()).status == 200


async def test_an_idle_connection_makes_room_for_a_new_one(tmp_path: Path) -> None:
    async with (
        behind(tmp_path, Limits(connections=3)) as (router, go),
        RawClient(router.address) as one,
        RawClient(router.address) as two,
        RawClient(router.address) as three,
    ):
        loop = asyncio.get_running_loop()
        for client in (one, two, three, one):
            assert await served(client)
            # The loop's clock ticks in milliseconds, and of two that came in one of them either may go.
            since = loop.time()
            await until(lambda since=since: loop.time() > since)
        await three.send(post({"model": "m"}, "/v1/chat/completions", "X-Wait: 1"))
        async with RawClient(router.address) as new:
            assert await served(new)
            assert await two.to_end() == b""
            assert not two.reset
            for client in (one, new):
                await client.send(post({"model": "m"}, "/v1/chat/completions", "X-Wait: 1"))
            await until(lambda: len(router.proxy.running) == 3)
            refused = await ask(router.address, ASK)
            assert (refused.status, refused.code) == (503, "too_many_connections")
            go.set()
            for client in (one, three, new):
                assert (await client.answer()).status == 200
            assert (await ask(router.address, ASK)).status == 200
        assert await metric(router.admin_address, "headrace_refused_total", code="too_many_connections") == 1


async def test_who_has_sent_a_part_of_a_request_keeps_its_place(tmp_path: Path) -> None:
    async with behind(tmp_path, Limits(connections=2)) as (router, _):
        for cut in (1, 30, len(ASK) - 1):
            async with RawClient(router.address) as one, RawClient(router.address) as two:
                assert await served(one)
                for client in (one, two):
                    await client.send(ASK[:cut])
                await until(lambda: sum(not each.waits for each in router._listener.connections) == 2)
                assert (await ask(router.address, ASK)).code == "too_many_connections"
                for client in (one, two):
                    await client.send(ASK[cut:])
                    assert (await client.answer()).status == 200
            await until(lambda: not router._listener.connections)


async def test_who_never_said_anything_makes_room_after_a_moment(tmp_path: Path) -> None:
    async with behind(tmp_path, Limits(connections=1)) as (router, _), RawClient(router.address) as silent:
        await until(lambda: router._listener.connections)
        async with asyncio.timeout(20):
            while (await ask(router.address, ASK)).status != 200:
                pass
        assert await silent.to_end() == b""


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
async def test_hundreds_that_idle_keep_nobody_out(tmp_path: Path, tls: bool) -> None:
    """Nor do those that don't answer the end of their TLS, as clients don't that look at no idle connection."""
    authority = Authority() if tls else None
    context: ssl.SSLContext | None = authority.client() if authority else None
    async with behind(tmp_path, Limits(connections=8), authority) as (router, _), contextlib.AsyncExitStack() as stack:
        for _ in range(24 if tls else 300):
            client = await stack.enter_async_context(RawClient(router.address, context))
            assert await served(client)
            assert router._listener._counted() <= 8
            client.writer.transport.pause_reading()
        await until(lambda: len(router._listener.connections) == 8)


BOTH = pytest.mark.parametrize("framing", ["length", "chunked"])


@BOTH
@pytest.mark.parametrize("every", [0.02, 0.3], ids=["often", "now and then"])
async def test_dripped_bodies_give_their_memory_to_others(tmp_path: Path, framing: str, every: float) -> None:
    """One that sent most of its body at once, and bytes now and then, held it until the last of them."""
    limits = Limits(body_idle=1.0, body_rate=1000, body_memory=64 * 1024)
    async with behind(tmp_path, limits) as (router, _), RawClient(router.address) as slow:
        await slow.send(most(framing))
        await until(lambda: router.proxy.memory.held == len(LARGE) - LEFT)
        assert (await ask(router.address, post(LARGE))).code == "router_overloaded"
        answer = await dripped(slow, framing, every)
        assert (answer.status, answer.code) == (408, "body_timeout")
        assert answer.header("Connection") == "close"
        assert router.proxy.memory.held == 0
        assert (await ask(router.address, post(LARGE))).status == 200
        assert await metric(router.admin_address, "headrace_refused_total", code="body_timeout") == 1
        assert await slow.to_end() == b""


@BOTH
async def test_who_sends_nothing_more_of_a_body_is_told_so(tmp_path: Path, framing: str) -> None:
    async with behind(tmp_path, Limits(body_idle=0.4)) as (router, _), RawClient(router.address) as stopped:
        await stopped.send(most(framing))
        answer = await stopped.answer()
        assert answer.code == "body_timeout"
        assert b'"no bytes of the body came for ' in answer.body


@BOTH
async def test_slow_bodies_that_go_on_are_served(tmp_path: Path, framing: str) -> None:
    limits = Limits(body_idle=2.0, body_rate=5)
    async with behind(tmp_path, limits) as (router, _), RawClient(router.address) as slow:
        await slow.send(most(framing))
        for byte in LARGE[-LEFT:-70]:
            await slow.send(framed(framing, bytes([byte])))
            await asyncio.sleep(0.1)
        await slow.send(framed(framing, LARGE[-70:]) + (b"" if framing == "length" else b"0\r\n\r\n"))
        assert (await slow.answer()).status == 200
