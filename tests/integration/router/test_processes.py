"""A router of several processes: one in limits, pages, reloads and its end, whoever of them dies or hangs."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path

from headrace_api.table import TableQueue
from headrace_operator.loader.pages import router_page
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import RawClient, ask, get, post
from support.router_process import Process, metric, reads, ready, until, until_async
from support.router_processes import (
    Holding,
    Streaming,
    children,
    connected,
    gone,
    pids,
    started,
    stopped,
    until_ready,
)

ASK = {"model": "m"}
STREAM = {"model": "m", "stream": True}


async def in_flight(router: Process) -> float:
    return await metric(router.admin, "headrace_in_flight_requests")


async def test_limits_hold_over_processes_wherever_connections_land(tmp_path: Path) -> None:
    """Issue 5, Processes: one worker alone can use the whole limit (a split would stop it at half of it), two together
    no more than it; places that one gives back are the other's; who waits in both counts against one queue."""
    script = Holding()
    async with FakeEngine(script) as engine:
        queue = TableQueue(max=3, deadline=60.0)
        async with started(tmp_path, engine, limit=4, queue=queue) as router:
            workers = await pids(router)
            async with connected(router, workers, 0, 6) as first, connected(router, workers, 1, 3) as second:
                for client in first[:4]:
                    await client.send(post(ASK))
                await engine.until(lambda: script.now == 4)
                # Full for the other worker too: its requests wait, and so does the first's next.
                for client in (*second[:2], first[4]):
                    await client.send(post(ASK))

                async def waiting() -> bool:
                    return await metric(router.admin, "headrace_queued_requests") == 3

                await until_async(waiting)
                assert script.now == 4
                # The queue is full, in whichever process one asks.
                for client in (first[5], second[2]):
                    await client.send(post(ASK))
                    answer = await client.answer()
                    assert (answer.status, answer.code) == (429, "saturated")
                script.let_go.set()
                for client in (*first[:5], *second[:2]):
                    assert (await client.answer()).status == 200
                assert script.most == 4
                assert await in_flight(router) == 0
                # To the operator it is one router, which was offered what all its processes were.
                page = (await get(router.admin, "/metrics")).body.decode()
                counts, trouble = router_page(page, "fe-a")
                assert (sum(counts.offered.values()), trouble) == (9, "")


async def test_who_has_fewer_connections_is_not_starved(tmp_path: Path) -> None:
    """A full engine's places go round among the workers that wait for one, whichever frees them: one client on a worker
    of its own gets on although the other worker's clients would take every place in the moment that it is free."""

    async def brief(exchange: Exchange) -> None:
        await asyncio.sleep(0.02)
        await exchange.answer()

    async with FakeEngine(brief) as engine:
        queue = TableQueue(max=100, deadline=20.0)
        async with started(tmp_path, engine, limit=1, queue=queue) as router:
            workers = await pids(router)
            async with connected(router, workers, 0, 8) as many, connected(router, workers, 1, 1) as one:
                served = 0
                enough = asyncio.Event()

                async def ask_again(client: RawClient) -> None:
                    nonlocal served
                    while not enough.is_set():
                        await client.send(post(ASK))
                        assert (await client.answer(60.0)).status == 200
                        served += 1

                busy = [asyncio.create_task(ask_again(client)) for client in many]
                await until(lambda: served >= 8)
                for _ in range(5):
                    before = served
                    await one[0].send(post(ASK))
                    assert (await one[0].answer(60.0)).status == 200
                    # A place or two of the others' on the way, not a queue of them for ever.
                    assert served - before <= 20
                enough.set()
                await asyncio.gather(*busy)


async def test_a_worker_killed_under_load_takes_only_its_own_with_it(tmp_path: Path) -> None:
    """Its streams are cut, the other worker's end well; what it held is free again; it is started anew; counters of the
    pages never fall."""
    script = Streaming()
    async with FakeEngine(script) as engine, started(tmp_path, engine, limit=6) as router:
        workers = await pids(router)
        async with connected(router, workers, 0, 3) as dying, connected(router, workers, 1, 3) as living:
            for client in (*dying, *living):
                await client.send(post(STREAM))
                await client.until(EVENT)
            assert await in_flight(router) == 6
            offered = await metric(router.admin, "headrace_offered_requests_total")
            assert offered == 6
            os.kill(workers[0], signal.SIGKILL)
            for client in dying:
                assert b"0\r\n\r\n" not in await client.to_end()
            await engine.until(lambda: engine.open_connections == 3)

            async def counted_out() -> bool:
                assert await metric(router.admin, "headrace_offered_requests_total") >= offered
                return await in_flight(router) == 3 and (await ready(router.admin))[0] == 200

            await until_async(counted_out)
            again = await pids(router)
            assert again[0] != workers[0]
            assert again[1] == workers[1]
            await reads(1, router.admin, "headrace_process_restarts_total", process="0")
            assert await metric(router.admin, "headrace_process_restarts_total", process="1") == 0
            # The three places of the dead one are to be had, no more.
            async with connected(router, again, 0, 3) as new:
                for client in new:
                    await client.send(post(STREAM))
                    await client.until(EVENT)
                assert await in_flight(router) == 6
                script.end.set()
                for client in (*living, *new):
                    assert (await client.answer()).complete
        await reads(9, router.admin, "headrace_offered_requests_total")
        assert any("process 0" in line and "SIGKILL" in line for line in router.said)
        # Nor do they fall when the process of the pages dies, of whose memory they were.
        page = next(pid for pid in children(router.process.pid) if pid not in again)
        os.kill(page, signal.SIGKILL)
        await until(lambda: gone(page))

        async def same_again() -> bool:
            # Who has just connected may still be in the backlog of the one that died.
            with contextlib.suppress(ConnectionError, AssertionError):
                return await metric(router.admin, "headrace_offered_requests_total") == 9
            return False

        await until_async(same_again)


async def test_a_hung_worker_holds_up_no_page(tmp_path: Path) -> None:
    """SCA-02 (https://github.com/vllm-project/production-stack/issues/431), its kind: what hangs is said and left out,
    the page of the others comes all the same, and counters stay."""
    async with FakeEngine(answers) as engine, started(tmp_path, engine) as router:
        workers = await pids(router)
        for number in range(2):
            async with connected(router, workers, number, 1) as clients:
                await clients[0].send(post(ASK))
                assert (await clients[0].answer()).status == 200
        await reads(2, router.admin, "headrace_offered_requests_total")
        with stopped(workers[1]):
            page = (await get(router.admin, "/metrics")).body
            assert b'headrace_process_up{process="0"} 1.0' in page
            assert b'headrace_process_up{process="1"} 0.0' in page
            assert re.search(rb"headrace_offered_requests_total\{.*\} 2.0", page)
            status, detail = await ready(router.admin)
            assert (status, detail["processes"][0]["ready"]) == (503, True)
            assert re.search(r"has not answered for", detail["processes"][1]["why"])
            assert (await get(router.admin, "/healthz")).status == 200
            explained = await get(router.admin, "/debug/explain?model=m")
            assert (explained.status, explained.header("x-headrace-process")) == (200, "0")
            assert (await get(router.admin, "/debug/explain?model=m&process=1")).status == 503
            # New connections are the other's.
            assert (await ask(router.url, post(ASK))).status == 200
        await until_ready(router)
        assert (await get(router.admin, "/debug/explain?model=m&process=1")).header("x-headrace-process") == "1"
        assert (await get(router.admin, "/debug/explain?model=m&process=2")).status == 400
        await reads(3, router.admin, "headrace_offered_requests_total")


async def test_sigterm_under_load_loses_nothing(tmp_path: Path) -> None:
    """SHU-01 (https://github.com/mnfst/llm-gateway/pull/2326) and SHU-02: readiness falls at once, connections are
    served for the delay, streams of both workers end in the grace, exit 0."""
    script = Streaming()

    async def both(exchange: Exchange) -> None:
        await (script(exchange) if b"stream" in exchange.request.body else answers(exchange))

    async with FakeEngine(both) as engine, started(tmp_path, engine, "--drain-delay", "1.5", "--grace", "20") as router:
        workers = await pids(router)
        async with connected(router, workers, 0, 2) as first, connected(router, workers, 1, 2) as second:
            for client in (*first, *second):
                await client.send(post(STREAM))
                await client.until(EVENT)
            served = 0
            refused = asyncio.Event()

            async def ask_again() -> None:
                nonlocal served
                with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):
                    while True:
                        answer = await ask(router.url, post(ASK))
                        assert (answer.status, answer.complete) == (200, True)
                        served += 1
                refused.set()

            asking = [asyncio.create_task(ask_again()) for _ in range(4)]
            await until(lambda: served > 20)
            router.terminate()

            async def fallen() -> bool:
                return (await ready(router.admin))[0] == 503

            await until_async(fallen)
            assert (await get(router.admin, "/healthz")).status == 200
            before = served
            await asyncio.wait_for(refused.wait(), 20)
            await asyncio.gather(*asking)
            assert served > before
            script.end.set()
            for client in (*first, *second):
                assert (await client.answer()).complete
        assert await router.exit_code() == 0
        assert all(gone(pid) for pid in workers)
        assert not any("Traceback" in line or "destroyed" in line for line in router.said)


async def test_workers_end_gently_without_their_parent(tmp_path: Path) -> None:
    """kill -9 of the parent: what runs ends well, then the processes do, and nobody listens any more."""
    script = Streaming()
    async with FakeEngine(script) as engine, started(tmp_path, engine) as router:
        workers = await pids(router)
        async with connected(router, workers, 0, 1) as first, connected(router, workers, 1, 1) as second:
            for client in (*first, *second):
                await client.send(post(STREAM))
                await client.until(EVENT)
            router.process.kill()
            await until(lambda: sum("is gone" in line for line in router.said) == 2)
            assert (await ready(router.admin))[0] == 503
            script.end.set()
            for client in (*first, *second):
                assert (await client.answer()).complete
        await until(lambda: all(gone(pid) for pid in workers))
        with contextlib.suppress(ConnectionRefusedError):
            await ask(router.url, post(ASK))
            raise AssertionError("somebody still listens")


async def test_what_keeps_it_from_starting_is_said_once_with_3(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_cli.main", "router", "--listen", "127.0.0.1:0"),
        *("--admin", "127.0.0.1:0", "--table", str(tmp_path / "t"), "--processes", "3"),
        *("--tls-cert", missing, "--tls-key", missing),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 3
    assert said.decode().count("does not exist") == 1


async def test_ctrl_c_ends_at_once_and_twice_without_grace(tmp_path: Path) -> None:
    script = Streaming()
    arguments = ("--drain-delay", "60", "--grace", "60")
    async with FakeEngine(script) as engine, started(tmp_path, engine, *arguments) as router:
        workers = await pids(router)
        async with connected(router, workers, 1, 1) as clients:
            client = clients[0]
            await client.send(post(STREAM))
            await client.until(EVENT)
            router.process.send_signal(signal.SIGINT)

            async def fallen() -> bool:
                return (await ready(router.admin))[0] == 503

            await until_async(fallen)
            router.process.send_signal(signal.SIGINT)
            assert b"shutting_down" in await client.to_end()
            assert await router.exit_code() == 0
