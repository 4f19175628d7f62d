"""Streams that arrive whole: long, in pieces, slow, many at once, beside large bodies, after descriptors ran out."""

import asyncio
import os
from pathlib import Path

from headrace_api.table import TableTimeouts
from support.fake_engine import EVENT, Exchange, FakeEngine, streams
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, metric, reads, router_in_loop
from support.router_table import routing_table

ASK = {"model": "m", "stream": True}


async def test_one_very_long_event_arrives_unchanged(tmp_path: Path) -> None:
    """STR-04 (https://github.com/aio-libs/aiohttp/issues/4453): no line limit."""
    event = b'{"choices":[{"delta":{"content":"' + b"x" * 700 * 1024 + b'"}}]}'
    async with (
        FakeEngine(streams(event)) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        answer = await ask(router.address, post(ASK))
        assert answer.complete
        assert answer.body == b"data: " + event + b"\n\ndata: [DONE]\n\n"


async def test_pieces_pass_unchanged_and_tokens_are_counted(tmp_path: Path) -> None:
    """STR-05 (https://github.com/envoyproxy/ai-gateway/issues/2162): bytes identical, 3 + 1 tokens counted."""
    pieces = (
        b": ping\r\n\r\n",
        b'data:{"choices":[{"delta":{"content":"\xe5\x8c',
        b'\x97"}}]}\r\n\r\nda',
        b'ta: {"choices":[],"usage":{"prompt_to',
        b'kens":3,"completion_tokens":1}}\r\n\r\n',
        b"data: [DONE]\r\n\r\n",
    )

    async def in_pieces(exchange: Exchange) -> None:
        await exchange.start_sse()
        for piece in pieces:
            await exchange.chunk(piece)
            await asyncio.sleep(0.02)
        await exchange.end_chunks()

    async with (
        FakeEngine(in_pieces) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        body = b'{"model":"m","stream":true,"stream_options":{"include_usage":false}}'
        answer = await ask(router.address, post(body))
        assert answer.body == b"".join(pieces)
        assert engine.requests[0].body == body
        await reads(3, router.admin_address, "headrace_offered_input_tokens_total")
        await reads(1, router.admin_address, "headrace_offered_output_tokens_total")
        await reads(1, router.admin_address, "headrace_ended_requests_total")
        await reads(1, router.admin_address, "headrace_time_to_first_token_seconds_count")


async def test_no_total_limit_and_headers_against_buffering(tmp_path: Path) -> None:
    """STR-07 (https://github.com/BerriAI/litellm/pull/25654), scaled 1/100: 4 s of stream at idle and first-byte
    limits that are far shorter than the whole."""
    timeouts = TableTimeouts(connect=10.0, first_byte=3.0, idle=2.0, send=2.0, unary=0.1)

    async def slow(exchange: Exchange) -> None:
        await exchange.start_sse()
        await asyncio.sleep(0.4)
        for _ in range(20):
            await exchange.chunk(EVENT)
            await asyncio.sleep(0.18)
        await exchange.end_chunks()

    async with (
        FakeEngine(slow) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url}, timeouts=timeouts)) as router,
    ):
        answer = await ask(router.address, post(ASK))
        assert (answer.complete, answer.body) == (True, EVENT * 20)
        assert answer.header("X-Accel-Buffering") == "no"
        assert answer.header("Cache-Control") == "no-cache"
        assert answer.header("Content-Encoding") is None


async def test_three_hundred_streams_at_once(tmp_path: Path) -> None:
    """SCA-01 (https://github.com/BerriAI/litellm/pull/19711): no default of 100 connections; connect time is known."""
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        await release.wait()
        await exchange.end_chunks()

    async with (
        FakeEngine(held) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        asking = [asyncio.create_task(ask(router.address, post(ASK), 60)) for _ in range(300)]
        await engine.until(lambda: len(engine.requests) == 300, 60)
        assert in_flight(router) == 300
        assert await metric(router.admin_address, "headrace_upstream_connect_seconds_count") >= 300
        release.set()
        answers = await asyncio.gather(*asking)
        assert all(answer.complete for answer in answers)
        assert in_flight(router) == 0


async def test_large_bodies_do_not_stop_streams_or_probes(tmp_path: Path) -> None:
    """SCA-02 (https://github.com/sgl-project/sglang/issues/30770), shape: large bodies arrive whole and streams go on
    meanwhile (times are a benchmark's business). The hash reads a bounded prefix."""
    release = asyncio.Event()

    async def either(exchange: Exchange) -> None:
        if len(exchange.request.body) > 1000:
            await exchange.answer()
            return
        await exchange.start_sse()
        while not release.is_set():
            await exchange.chunk(EVENT)
            await asyncio.sleep(0.05)
        await exchange.end_chunks()

    async with FakeEngine(either) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table) as router:
            streaming = [asyncio.create_task(ask(router.address, post(ASK), 60)) for _ in range(5)]
            await engine.until(lambda: len(engine.requests) == 5)
            text = b'{"model":"m","messages":[{"role":"user","content":"' + b"x\\n" * 3 * 2**20 + b'"}]}'
            tokens = b'{"model":"m","prompt":[' + b",".join(b"%d" % n for n in range(10**6)) + b"]}"
            asking = [asyncio.create_task(ask(router.address, post(body), 60)) for body in (text, tokens) * 2]
            for answer in await asyncio.gather(*asking):
                assert answer.status == 200
            assert (await ask(router.admin_address, b"GET /healthz HTTP/1.1\r\nHost: r\r\n\r\n")).status == 200
            release.set()
            assert all(answer.complete for answer in await asyncio.gather(*streaming))
            assert sorted(len(request.body) for request in engine.requests)[-2:] == [len(text)] * 2


async def test_descriptors_that_run_out_are_our_own_fault_and_pass(tmp_path: Path) -> None:
    """SCA-01: file-descriptor exhaustion gives 503, ejects no engine, and recovers."""
    import resource

    async with (
        FakeEngine(streams(b"{}")) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post(ASK))
        await client.answer()
        router.upstream.renew("inference/a")
        await engine.until(lambda: engine.open_connections == 0)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            for _ in range(6):
                await client.send(post(ASK))
                answer = await client.answer()
                assert (answer.status, answer.code) == (503, "router_overloaded")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await client.send(post(ASK))
        assert (await client.answer()).status == 200
        assert in_flight(router) == 0
