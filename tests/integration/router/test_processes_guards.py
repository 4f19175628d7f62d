"""What clients hold of a router of several processes: every worker has bounds of its own, and the others serve on."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from support.certificates import Authority
from support.dripping import LARGE, dripped, most
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import Answer, RawClient, ask, post
from support.router_process import reads, until_async
from support.router_processes import Streaming, connected, pids, started, stopped

ASK = post({"model": "m"})
STREAM = post({"model": "m", "stream": True})


async def served(client: RawClient) -> bool:
    await client.send(ASK)
    return (await client.answer()).status == 200


async def asked_of(url: str, hung: int, data: bytes = ASK, tls: ssl.SSLContext | None = None) -> Answer:
    """The answer to a request on a new connection while one worker, by pid, hangs."""
    with stopped(hung):
        return await ask(url, data, tls=tls)


def in_form(form: str, tmp_path: Path) -> tuple[list[str], ssl.SSLContext | None]:
    """The router's options for ``plain`` or ``tls``, and what clients do."""
    if form == "plain":
        return [], None
    authority = Authority()
    cert, key = authority.issue("127.0.0.1").write(tmp_path / "tls")
    return ["--tls-cert", str(cert), "--tls-key", str(key)], authority.client()


def both_by(script: Streaming) -> Callable[[Exchange], Awaitable[None]]:
    """An engine that streams by the script, and answers at once what asks for no stream."""

    async def both(exchange: Exchange) -> None:
        await (script(exchange) if b"stream" in exchange.request.body else answers(exchange))

    return both


@pytest.mark.parametrize("form", ["plain", "tls"])
async def test_a_full_worker_makes_room_for_new_connections_or_leaves_them(tmp_path: Path, form: str) -> None:
    """--max-connections is each worker's. Who has nothing but running requests leaves a new connection to who has an
    idle one; refused is it where nobody has, or who may have hangs."""
    script = Streaming()
    refusals: list[int] = []
    options, tls = in_form(form, tmp_path)
    async with (
        FakeEngine(both_by(script)) as engine,
        started(tmp_path, engine, "--max-connections", "3", *options) as router,
    ):
        workers = await pids(router)
        async with connected(router, workers, 0, 3, tls) as first, connected(router, workers, 1, 3, tls) as second:
            for client in (*first, *second):
                assert await served(client)
            # The oldest of the worker that takes it; of the other one none.
            assert (await asked_of(router.url, workers[1], tls=tls)).status == 200
            assert await first[0].to_end() == b""
            assert not first[0].reset
            for client in (*first[1:], *second):
                assert await served(client)

            async with connected(router, workers, 0, 1, tls) as again:
                running = (*first[1:], *again)
                for client in running:
                    await client.send(STREAM)
                    await client.until(EVENT)
                # One after the other they take each other's places at the second worker.
                for _ in range(30):
                    assert (await ask(router.url, ASK, tls=tls)).status == 200
                # Nobody waits for a worker that hangs, and nobody is cut.
                refused = await asked_of(router.url, workers[1], tls=tls)
                assert (refused.status, refused.code) == (503, "too_many_connections")

                async def serves_again() -> bool:
                    answer = await ask(router.url, ASK, tls=tls)
                    refusals.append(answer.status)
                    return answer.status == 200

                await until_async(serves_again)
                # Nor is anybody taken in once all run in both.
                async with (
                    RawClient(router.url, tls) as one,
                    RawClient(router.url, tls) as two,
                    RawClient(router.url, tls) as three,
                ):
                    for client in (one, two, three):
                        await client.send(STREAM)
                        await client.until(EVENT)
                    refused = await ask(router.url, ASK, tls=tls)
                    assert (refused.status, refused.code) == (503, "too_many_connections")
                    script.end.set()
                    for client in (*running, one, two, three):
                        assert (await client.answer()).complete
        expected = 2 + refusals.count(503)
        await reads(expected, router.admin, "headrace_refused_total", code="too_many_connections")


@pytest.mark.parametrize("form", ["plain", "tls"])
async def test_a_burst_finds_all_the_room_there_is(tmp_path: Path, form: str) -> None:
    """One idle connection makes room for one newcomer: it counted for each of a burst, half of which was refused."""
    script = Streaming()
    options, tls = in_form(form, tmp_path)
    async with (
        FakeEngine(both_by(script)) as engine,
        started(tmp_path, engine, "--max-connections", "8", *options) as router,
    ):
        workers = await pids(router)
        async with connected(router, workers, 0, 8, tls) as first, connected(router, workers, 1, 8, tls) as second:
            for client in (*first, *second):
                assert await served(client)
            running = (*first[1:], second[0])
            for client in running:
                await client.send(STREAM)
                await client.until(EVENT)
            for _ in range(3):
                found = await asyncio.gather(*[ask(router.url, ASK, tls=tls) for _ in range(6)])
                assert [answer.status for answer in found] == [200] * 6
            script.end.set()
            for client in running:
                assert (await client.answer()).complete
        await reads(0, router.admin, "headrace_refused_total", code="too_many_connections")


async def test_slow_heads_are_answered_and_closed_by_every_worker(tmp_path: Path) -> None:
    async with FakeEngine(answers) as engine, started(tmp_path, engine, "--head-timeout", "1") as router:
        workers = await pids(router)
        async with connected(router, workers, 0, 2) as first, connected(router, workers, 1, 2) as second:
            for new, kept in (first, second):
                assert await served(kept)
                for client in (new, kept):
                    await client.send(ASK[:40])
            late = [await client.answer() for client in (*first, *second)]
            assert [(answer.status, answer.code) for answer in late] == [(408, "head_timeout")] * 4
            assert [answer.header("Connection") for answer in late] == ["close"] * 4
            for client in (*first, *second):
                assert await client.to_end() == b""
        await reads(4, router.admin, "headrace_refused_total", code="head_timeout")
        await reads(2, router.admin, "headrace_offered_requests_total")


async def test_dripped_bodies_take_the_memory_of_their_worker_for_a_while(tmp_path: Path) -> None:
    """--body-memory is each worker's: the pod holds as much for each. Who drips is answered, and gives it back."""
    bounds = ("--body-timeout", "2", "--body-rate", "1000", "--body-memory", "64Ki")
    async with FakeEngine(answers) as engine, started(tmp_path, engine, *bounds) as router:
        workers = await pids(router)

        async def large(number: int) -> object:
            """What becomes of a large body at a worker."""
            answer = await asked_of(router.url, workers[1 - number], post(LARGE))
            return answer.status if answer.status == 200 else answer.code

        async def until_large(number: int, told: object) -> None:
            async def so() -> bool:
                return await large(number) == told

            await until_async(so)

        async with connected(router, workers, 0, 1) as first, connected(router, workers, 1, 1) as second:
            await first[0].send(most("length"))
            await until_large(0, "router_overloaded")
            assert await large(1) == 200
            await second[0].send(most("chunked"))
            await until_large(1, "router_overloaded")
            assert await large(0) == "router_overloaded"
            late = await asyncio.gather(dripped(first[0], "length", 0.02), dripped(second[0], "chunked", 0.3))
            for answer in late:
                assert (answer.status, answer.code, answer.header("Connection")) == (408, "body_timeout", "close")
            for client in (*first, *second):
                assert await client.to_end() == b""
            assert [await large(number) for number in range(2)] == [200, 200]
        await reads(2, router.admin, "headrace_refused_total", code="body_timeout")
