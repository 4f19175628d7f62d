"""What a router says of real requests: its metrics by kind of answer, and an access log that nobody reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import ask, get, post
from support.router_process import metric, reads, router_in_loop, router_process
from support.router_table import routing_table, table_bytes

ASK = {"model": "m"}


async def streams_or_answers(exchange: Exchange) -> None:
    if b'"stream"' not in exchange.request.body:
        await exchange.answer(b'{"usage":{"prompt_tokens":30,"completion_tokens":4}}')
        return
    await exchange.start_sse()
    for _ in range(5):
        await exchange.chunk(EVENT)
        await asyncio.sleep(0.02)
    await exchange.chunk(b'data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":9}}\n\n')
    await exchange.end_chunks()


async def test_streams_and_whole_answers_are_told_apart(tmp_path: Path) -> None:
    async with FakeEngine(streams_or_answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table) as router:
            admin = router.admin_address
            assert (await ask(router.address, post(ASK))).status == 200
            for _ in range(2):
                assert (await ask(router.address, post({**ASK, "stream": True}))).status == 200
            await reads(1, admin, "headrace_request_duration_seconds_count", mode="unary", model="m")
            await reads(2, admin, "headrace_request_duration_seconds_count", mode="stream", model="m")
            await reads(2, admin, "headrace_time_to_first_token_seconds_count")
            await reads(2, admin, "headrace_time_between_output_tokens_seconds_count")
            name = "headrace_engine_time_between_output_tokens_seconds"
            await reads(16, admin, f"{name}_count", engine="inference/a")
            assert await metric(admin, f"{name}_sum", engine="inference/a") > 0.1
            await reads(22, admin, "headrace_engine_output_tokens_total", engine="inference/a")
            await reads(3, admin, "headrace_requests_total", engine="inference/a", model="m", outcome="ok")


async def test_clients_make_no_series(tmp_path: Path) -> None:
    """router.md, Seen from outside: label values come from the table, whatever a client sends."""

    async def series(admin: str) -> int:
        page = (await get(admin, "/metrics")).body.decode()
        return sum(len(family.samples) for family in text_string_to_metric_families(page))

    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table) as router:

            async def strange(number: int) -> None:
                headers = (f"x-request-id: r{number}", f"x-priority: p{number}", f"x-headrace-priority: p{number}")
                await ask(router.address, post({"model": f"m{number}"}, "/v1/chat/completions", *headers))
                await ask(router.address, post(ASK, "/v1/chat/completions", *headers))
                await ask(router.address, post(ASK, f"/v1/x{number}", *headers))

            await strange(0)
            before = await series(router.admin_address)
            for number in range(1, 10):
                await strange(number)
            assert await series(router.admin_address) == before


async def test_an_access_log_that_nobody_reads_holds_up_nothing(tmp_path: Path) -> None:
    """A full pipe: requests are answered, and the router ends in time."""
    path = tmp_path / "t.json"
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    try:
        async with FakeEngine(answers) as engine:
            path.write_bytes(table_bytes(routing_table({"a": engine.url})))
            async with router_process(
                "--table", str(path), "--drain-delay", "0", "--access-log", stdout=write
            ) as router:
                for _ in range(60):
                    assert (await ask(router.url, post(ASK))).status == 200
                router.terminate()
                assert await router.exit_code() == 0
        os.close(write)
        write = -1
        lines = 0
        while piece := os.read(read, 65_536):
            lines += piece.count(b"\n")
        assert 0 < lines < 60, "the pipe was full"
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
