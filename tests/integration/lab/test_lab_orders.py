"""Simulated engines that are told to be slow, to fail, to pause, to die or to drain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from headrace_lab.engine.fleet import Fleet
from headrace_lab.engine.server import StateChange
from support.lab_engines import body, page, until


async def test_slow_triples_the_step(start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession) -> None:
    fleet = await start()
    url = fleet.urls["a"][0]

    async def gaps() -> float:
        """Sum of a request's 20 gaps, by the engine's own clock."""
        before = (await page(http, url))["vllm:inter_token_latency_seconds_sum", ""]
        async with http.post(f"{url}/v1/chat/completions", json=body(max_tokens=21)) as answer:
            assert answer.status == 200
        return (await page(http, url))["vllm:inter_token_latency_seconds_sum", ""] - before

    usual = await gaps()
    async with http.post(f"{url}/lab/state", json={"slow": 3.0}) as answer:
        assert (await answer.json())["slow"] == 3.0
    assert await gaps() == pytest.approx(3 * usual)
    await fleet.restore("a")
    assert await gaps() == pytest.approx(usual)


async def test_failing_draining_and_paused(start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession) -> None:
    fleet = await start()
    url = fleet.urls["a"][0]

    async def status(path: str = "/v1/chat/completions") -> int:
        async with http.post(url + path, json=body()) if "v1" in path else http.get(url + path) as answer:
            return answer.status

    control = f"{fleet.control_url}/lab/engines/a"
    async with http.post(control, json={"fail": 1.0}) as answer:
        assert (await answer.json())["engines"]["a"][0]["fail"] == 1.0
    assert await status() == 500
    await fleet.set_state("a", StateChange(fail=0.0, draining=True))
    assert (await status(), await status("/health")) == (503, 503)
    await fleet.set_state("a", StateChange(draining=False, paused=True))
    hung = asyncio.create_task(status())
    await until(lambda: fleet.states("a")[0].waiting == 1)
    assert await status("/health") == 200
    await fleet.set_state("a", StateChange(paused=False))
    assert await hung == 200
    state = fleet.states("a")[0]
    assert (state.served, state.failed, state.refused, state.aborted) == (1, 1, 1, 0)


async def test_the_dead_cut_everything_and_come_back_empty_on_their_port(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession
) -> None:
    fleet = await start(prefixBlockTokens=64)
    replica = fleet.engines["a"][0]
    url = replica.url
    async with http.post(f"{url}/v1/chat/completions", json=body(max_tokens=100_000, stream=True)) as answer:
        await answer.content.readline()
        async with http.post(f"{fleet.control_url}/lab/engines/a", json={"dead": True}) as told:
            assert (await told.json())["engines"]["a"][0]["dead"] is True
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    with pytest.raises(aiohttp.ClientConnectorError):
        await http.get(f"{url}/health")
    assert (replica.state.running, replica.state.aborted) == (0, 1)
    async with http.post(f"{fleet.control_url}/lab/engines/a", json={"restore": True}) as told:
        assert (await told.json())["engines"]["a"][0] | {"aborted": 0} == {
            "url": url,
            "slow": 1.0,
            "fail": 0.0,
            "dead": False,
            "draining": False,
            "paused": False,
            **dict.fromkeys(("running", "waiting", "served", "aborted", "failed", "refused"), 0),
            "asked": {"": 1},
        }
    assert (await page(http, url))["vllm:generation_tokens_total", ""] == 0
    async with http.post(f"{url}/v1/chat/completions", json=body()) as answer:
        assert answer.status == 200
    # Told on its own port it answers first, then dies.
    async with http.post(f"{url}/lab/state", json={"dead": True}) as told:
        assert (await told.json())["dead"] is True
    with pytest.raises(aiohttp.ClientConnectorError):
        await http.get(f"{url}/health")
    await fleet.set_state("a", StateChange(dead=False))
    async with http.get(f"{url}/health") as answer:
        assert answer.status == 200
    assert (replica.state.served, replica.state.aborted) == (1, 1)


@pytest.mark.parametrize(
    ("path", "fields", "status", "fault"),
    [
        ("/lab/engines/b", {}, 404, "no engine 'b'"),
        ("/lab/engines/a", {"slow": 0}, 400, "slow"),
        ("/lab/engines/a", {"fail": 2}, 400, "fail"),
        ("/lab/engines/a", {"dead": "yes"}, 400, "dead"),
        ("/lab/engines/a", {"slo": 3}, 400, "slo"),
        ("/lab/engines/a", {"replica": 7}, 400, "replica"),
        ("/lab/engines/a", [], 400, "object"),
    ],
)
async def test_wrong_orders_change_nothing(
    start: Callable[..., Awaitable[Fleet]],
    http: aiohttp.ClientSession,
    path: str,
    fields: Any,
    status: int,
    fault: str,
) -> None:
    fleet = await start()
    before = fleet.states("a")
    async with http.post(fleet.control_url + path, json=fields) as answer:
        assert answer.status == status
        assert fault in (await answer.json())["error"]
    assert fleet.states("a") == before
    async with http.post(f"{fleet.urls['a'][0]}/lab/state", json={"slow": -1}) as answer:
        assert answer.status == 400


async def test_one_replica_changes_alone(start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession) -> None:
    fleet = await start(engine={"replicas": 2})
    async with http.post(f"{fleet.control_url}/lab/engines/a", json={"slow": 2, "replica": 1}):
        pass
    async with http.get(f"{fleet.control_url}/lab/engines") as answer:
        states = (await answer.json())["engines"]["a"]
    assert [state["slow"] for state in states] == [1.0, 2.0]
    assert [state["url"] for state in states] == fleet.urls["a"]


async def test_orders_at_the_same_time_leave_no_half_dead_engine(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession
) -> None:
    fleet = await start()
    for dead in (True, False):
        changes = [StateChange(dead=not dead), StateChange(dead=dead)] * 5
        await asyncio.gather(*[fleet.set_state("a", change) for change in changes])
        assert fleet.states("a")[0].dead is dead
        if dead:
            with pytest.raises(aiohttp.ClientConnectorError):
                await http.get(f"{fleet.urls['a'][0]}/health")
    async with http.get(f"{fleet.urls['a'][0]}/health") as answer:
        assert answer.status == 200


async def test_a_drained_fleet_ends_what_runs_and_takes_nothing_new(
    start: Callable[..., Awaitable[Fleet]], http: aiohttp.ClientSession
) -> None:
    """What a pod does on SIGTERM: its streams end whole, its health says no, its front-ends stay counted."""
    fleet = await start()
    url = fleet.urls["a"][0]
    headers = {"x-lab-frontend": "fe"}
    async with http.post(f"{url}/v1/chat/completions", json=body(stream=True), headers=headers) as answer:
        await answer.content.readline()
        draining = asyncio.create_task(fleet.drain(60.0))
        await asyncio.sleep(0)  # its first step refuses what is new
        async with http.get(f"{url}/health") as health:
            assert health.status == 503
        async with http.post(f"{url}/v1/chat/completions", json=body(), headers=headers) as refused:
            assert refused.status == 503
        assert (await answer.read()).rstrip().endswith(b"data: [DONE]")
    await draining
    async with http.get(f"{url}/lab/state") as told:
        state = await told.json()
    assert (state["asked"], state["served"], state["refused"]) == ({"fe": 2}, 1, 1)
