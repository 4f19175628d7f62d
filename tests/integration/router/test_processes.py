"""A router of several processes: one in limits, pages, reloads and its end, whoever of them dies or hangs."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace_api.table import TableQueue
from headrace_operator.loader.pages import router_page
from support.certificates import Authority
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import RawClient, ask, get, post
from support.router_process import Process, metric, ready, router_process, until, until_async
from support.router_processes import children, connected, details, gone, pids, sockets, stopped, until_ready
from support.router_table import EngineAt, routing_table, table_bytes

ASK = {"model": "m"}
STREAM = {"model": "m", "stream": True}


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
    tmp_path: Path, engine: FakeEngine, *more: str, limit: int = 0, **table: object
) -> AsyncIterator[Process]:
    """Two workers before one engine."""
    path = tmp_path / "t.json"
    path.write_bytes(table_bytes(routing_table({"a": EngineAt((engine.url,), limit=limit)}, **table)))
    arguments = ("--table", str(path), "--processes", "2", "--drain-delay", "0", *more)
    async with router_process(*arguments) as router:
        await until_ready(router)
        yield router


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
            assert await metric(router.admin, "headrace_process_restarts_total", process="0") == 1
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
        assert await metric(router.admin, "headrace_offered_requests_total") == 9
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
        assert await metric(router.admin, "headrace_offered_requests_total") == 2
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
        assert await metric(router.admin, "headrace_offered_requests_total") == 3


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


async def test_keys_and_tables_change_in_every_process(tmp_path: Path) -> None:
    """REL-02's kind with several processes: no worker goes on with what was replaced."""
    keys = tmp_path / "keys"

    def write(secret: str) -> None:
        keys.write_text(f"client sha256:{hashlib.sha256(secret.encode()).hexdigest()}\n")

    async with FakeEngine(answers) as engine:
        write("old")
        async with started(tmp_path, engine, "--api-keys", str(keys)) as router:
            workers = await pids(router)
            async with connected(router, workers, 0, 1) as first, connected(router, workers, 1, 1) as second:
                both = (first[0], second[0])

                async def statuses(key: str) -> list[int]:
                    found = []
                    for client in both:
                        await client.send(post(ASK, "/v1/chat/completions", f"Authorization: Bearer {key}"))
                        found.append((await client.answer()).status)
                    return found

                assert await statuses("old") == [200, 200]
                write("new")
                table = routing_table({"a": engine.url}, revision=2)
                (tmp_path / "t.json").write_bytes(table_bytes(table))

                async def changed() -> bool:
                    revisions = [detail["tables"][0]["revision"] for detail in await details(router)]
                    return revisions == [2, 2] and await statuses("new") == [200, 200]

                await until_async(changed)
                assert await statuses("old") == [401, 401]
            assert await metric(router.admin, "headrace_table_revision") == 2


async def test_a_new_certificate_is_every_process_s(tmp_path: Path) -> None:
    authority = Authority()
    pairs = [authority.issue("127.0.0.1") for _ in range(2)]
    cert, key = pairs[0].write(tmp_path / "tls")
    async with (
        FakeEngine(answers) as engine,
        started(tmp_path, engine, "--tls-cert", str(cert), "--tls-key", str(key)) as router,
    ):
        workers = await pids(router)

        async def shown(by: int) -> bytes:
            """The certificate that a worker shows, in a handshake with it alone."""
            with stopped(*(pid for number, pid in enumerate(workers) if number != by)):
                async with RawClient(router.url, authority.client()) as client:
                    await client.send(post(ASK))
                    assert (await client.answer()).status == 200
                    found: bytes = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                    return found

        first = [await shown(number) for number in range(2)]
        assert first[0] == first[1]
        pairs[1].write(tmp_path / "tls")

        async def changed() -> bool:
            return all([await shown(number) != first[0] for number in range(2)])

        await until_async(changed)


async def test_lines_of_the_access_log_stay_whole(tmp_path: Path) -> None:
    """Two processes write to one pipe, whose reader is slow: no line is broken by another's, no request id comes
    twice."""
    path = tmp_path / "t.json"
    read_from, write_to = os.pipe()
    lines = b""
    count = 600
    async with FakeEngine(answers) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        arguments = ("--table", str(path), "--processes", "2", "--drain-delay", "0", "--access-log")
        async with router_process(*arguments, stdout=write_to) as router:
            os.close(write_to)
            await until_ready(router)
            workers = await pids(router)
            async with connected(router, workers, 0, 4) as first, connected(router, workers, 1, 4) as second:

                async def ask_often(client: RawClient) -> None:
                    for _ in range(count // 8):
                        # Long lines: batches are larger than what a pipe takes at once.
                        await client.send(post(ASK, "/v1/chat/completions?" + "x" * 100))
                        await client.answer()

                await asyncio.gather(*(ask_often(client) for client in (*first, *second)))
            reading = asyncio.get_running_loop().run_in_executor(None, _read_all, read_from)
            router.terminate()
            assert await router.exit_code() == 0
            lines = await reading
    found = [json.loads(line) for line in lines.splitlines()]
    assert len({line["requestId"] for line in found}) == len(found) == count


def _read_all(descriptor: int) -> bytes:
    read = b""
    while data := os.read(descriptor, 512):
        read += data
    os.close(descriptor)
    return read


async def test_connections_are_spread_over_the_workers(tmp_path: Path) -> None:
    """Few connections that stay, as a load balancer's, don't all end up on one process."""
    async with FakeEngine(answers) as engine, started(tmp_path, engine) as router:
        workers = await pids(router)
        before = [sockets(pid) for pid in workers]
        async with contextlib.AsyncExitStack() as stack:
            for number in range(16):
                await stack.enter_async_context(RawClient(router.url))
                await until(lambda: sum(map(sockets, workers)) > sum(before) + number)  # noqa: B023
            assert all(sockets(pid) >= was + 2 for pid, was in zip(workers, before, strict=True))


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
