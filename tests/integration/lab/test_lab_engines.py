"""Simulated engines over real sockets: the openai client, vLLM's metrics page, clients that vanish, the process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from headrace_lab.engine.fleet import Fleet
from headrace_lab.engine.prompts import prompt_text
from support.lab_engines import MODEL, WITHIN, body, page, spec, until


async def test_the_openai_client_works_unchanged(start: Callable[..., Awaitable[Fleet]]) -> None:
    fleet = await start(streamInterval=4)
    async with openai.AsyncOpenAI(base_url=f"{fleet.urls['a'][0]}/v1", api_key="none", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        messages: Any = body()["messages"]
        answer = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=10)
        assert answer.choices[0].message.content == " tok" * 10
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 10)

        stream = await client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=10, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == " tok" * 10
        assert chunks[-2].choices[0].finish_reason == "length"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 10

        completion = await client.completions.create(model=MODEL, prompt="x" * 16)
        assert completion.choices[0].finish_reason == "stop"
        assert completion.usage is not None
        assert completion.usage.completion_tokens >= 1
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.chat.completions.create(model="other", messages=messages)
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=999_999)
        with pytest.raises(openai.BadRequestError, match="n is 2"):
            await client.chat.completions.create(model=MODEL, messages=messages, n=2)


async def test_the_first_token_comes_alone_then_an_event_every_interval(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession
) -> None:
    fleet = await start(streamInterval=4)
    async with http.post(f"{fleet.urls['a'][0]}/v1/chat/completions", json=body(max_tokens=11, stream=True)) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = [line.decode().removeprefix("data: ").strip() async for line in answer.content if line.strip()]
    assert lines[-1] == "[DONE]"
    texts = [json.loads(line)["choices"][0]["delta"]["content"] for line in lines[:-1]]
    assert texts == ["", " tok", " tok" * 4, " tok" * 4, " tok" * 2]


async def test_the_metrics_page_counts_what_was_served(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession
) -> None:
    fleet = await start(prefixBlockTokens=64)
    url = fleet.urls["a"][0]

    async def ask(number: int) -> None:
        text = prompt_text([0, number, number], 160, 64)
        fields = body(messages=[{"role": "user", "content": text}], max_tokens=5, stream=bool(number % 2))
        async with http.post(f"{url}/v1/chat/completions", json=fields) as answer:
            assert answer.status == 200
            await answer.read()

    await ask(0)
    await asyncio.gather(*[ask(number) for number in range(1, 20)])
    samples = await page(http, url)
    assert samples["vllm:request_success_total", "length"] == 20
    assert samples["vllm:request_success_total", "abort"] == 0
    assert samples["vllm:prompt_tokens_total", ""] == 20 * 160
    assert samples["vllm:generation_tokens_total", ""] == 20 * 5
    assert samples["vllm:prefix_cache_queries_total", ""] == 20 * 160
    # All 20 share the first block of 64 tokens; it is cached since the first one ended.
    assert samples["vllm:prefix_cache_hits_total", ""] == 19 * 64
    assert samples["vllm:prompt_tokens_cached_total", ""] == 19 * 64
    for name, count in (
        ("time_to_first_token_seconds", 20),
        ("inter_token_latency_seconds", 20 * 4),
        ("e2e_request_latency_seconds", 20),
        ("request_queue_time_seconds", 20),
        ("request_prompt_tokens", 20),
        ("request_generation_tokens", 20),
    ):
        assert samples[f"vllm:{name}_count", ""] == samples[f"vllm:{name}_bucket", "+Inf"] == count
        assert samples[f"vllm:{name}_sum", ""] > 0 or name == "request_queue_time_seconds"
    sums = [samples[f"vllm:{name}_seconds_sum", ""] for name in ("time_to_first_token", "inter_token_latency")]
    assert samples["vllm:e2e_request_latency_seconds_sum", ""] == pytest.approx(sum(sums))
    assert samples["vllm:num_requests_running", ""] == samples["vllm:num_requests_waiting", ""] == 0
    assert samples["vllm:kv_cache_usage_perc", ""] == 0


@pytest.mark.parametrize("headers", [{}, {"x-lab-frontend": "far"}], ids=["near", "far"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "unary"])
async def test_a_client_that_vanishes_frees_the_engine(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession, stream: bool, headers: dict[str, str]
) -> None:
    fleet = await start(roundTrips={"far": {"a": 0.2}})
    replica = fleet.engines["a"][0]
    read = asyncio.Event()

    async def ask() -> None:
        fields = body(max_tokens=100_000, stream=stream)
        async with http.post(f"{replica.url}/v1/chat/completions", json=fields, headers=headers) as answer:
            await answer.content.readline()
            read.set()
            await answer.read()

    asking = asyncio.create_task(ask())
    await until(lambda: replica.state.running == 1 and (read.is_set() or not stream))
    asking.cancel()
    await until(lambda: replica.state.aborted == 1)
    assert replica.state.running == 0
    samples = await page(http, replica.url)
    assert samples["vllm:request_success_total", "abort"] == 1
    assert samples["vllm:kv_cache_usage_perc", ""] == 0
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_named_front_end_is_as_far_away_as_its_round_trip(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession
) -> None:
    fleet = await start(roundTrips={"far": {"a": 0.5}}, speed=50.0)
    loop = asyncio.get_running_loop()
    for stream in (True, False):
        begun = loop.time()
        async with http.post(
            f"{fleet.urls['a'][0]}/v1/chat/completions",
            json=body(max_tokens=2, stream=stream),
            headers={"x-lab-frontend": "far"},
        ) as answer:
            await answer.read()
        assert loop.time() - begun >= 0.5


@pytest.mark.parametrize("of", ["control", "engine"])
async def test_a_taken_port_is_a_fault(start: Callable[..., Awaitable[Fleet]], of: str) -> None:
    taken = await start()
    url = taken.control_url if of == "control" else taken.urls["a"][0]
    with pytest.raises(OSError, match="in use"):
        await start(engine={"port": int(url.rsplit(":", 1)[1])})


@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
async def test_the_process_tells_its_ports_and_ends_when_told(
    tmp_path: Path, http: aiohttp.ClientSession, end: str
) -> None:
    file = tmp_path / "spec.json"
    file.write_bytes(msgspec.json.encode(spec()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_lab.engine", "--spec", str(file), "--exit-with-stdin"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = json.loads(await process.stdout.readline())
        assert line["pid"] == process.pid
        async with http.get(f"{line['engines']['a'][0]}/health") as answer:
            assert answer.status == 200
        async with http.get(f"{line['control']}/lab/engines") as answer:
            assert answer.status == 200
        if end == "stdin":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_wrong_spec_ends_the_process_with_its_fault(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text('{"engines": [{"name": "a", "hardware": "TPU", "model": "m"}]}')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_lab.engine", "--spec", str(file)), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"engines[a].hardware: 'TPU' is unknown; right would be one of B200x2" in said
    assert b"Traceback" not in said
