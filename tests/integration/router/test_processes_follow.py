"""What all processes of a router follow and share beside requests: keys, certificates, tables, log, connections."""

import asyncio
import contextlib
import hashlib
import json
import os
from pathlib import Path

from support.certificates import Authority
from support.fake_engine import FakeEngine, answers
from support.raw_client import RawClient, post
from support.router_process import reads, router_process, until, until_async
from support.router_processes import connected, details, pids, sockets, started, stopped, until_ready
from support.router_table import routing_table, table_bytes

ASK = {"model": "m"}


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
            await reads(2, router.admin, "headrace_table_revision")


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
