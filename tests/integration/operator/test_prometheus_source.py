"""A real Prometheus between engines, a router and the operator: demand, deaths, pauses, and the whole ladder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import yaml

from headrace_lab.engine.fleet import Fleet, parse_spec
from headrace_lab.engine.server import StateChange
from support.engine_manifests import engine_dict, policy_dict
from support.operator_process import OperatorProcess, condition, operator, status, until, weights, write_manifests
from support.prometheus_process import PrometheusProcess
from support.router_process import Process, router_process

CANARY = "canary-5c1e-token"


class Place(NamedTuple):
    fleet: Fleet
    prometheus: PrometheusProcess
    router: Process
    operator: OperatorProcess
    state: Path

    def signals(self) -> dict[str, str]:
        """The policy's condition SignalsFresh."""
        return condition(status(self.state, "routingpolicy", "chat"), "SignalsFresh")

    def told(self, what: str) -> bool:
        """Whether the policy's status says this of a signal."""
        signals = status(self.state, "routingpolicy", "chat").get("status", {}).get("signals", [])
        return any(what in signal for signal in signals)

    def engine(self, name: str) -> dict[str, Any]:
        return condition(status(self.state, "inferenceengine", name), "SignalsFresh")

    def near(self) -> int:
        return weights(self.state, "fe-a").get("inf/near", 0)


def manifests(fleet: Fleet) -> list[dict[str, Any]]:
    here, there = {"region": "r1"}, {"region": "r2"}
    capacity = {"perReplica": {"requestsPerSecond": 10}}
    return [
        engine_dict("near", fleet.urls["near"], location=here, capacity=capacity, rampUp="1s"),
        # Found by its labels, as an engine of another cluster is.
        engine_dict(
            "far",
            fleet.urls["far"],
            location=there,
            capacity=capacity,
            rampUp="1s",
            metrics={"source": "prom", "selector": {"job": "engines", "engine_name": "far"}},
        ),
        policy_dict(
            frontends=[{"name": "fe-a", "location": here, "demand": {"requestsPerSecond": 1}}],
            # Longer rungs than the 5 s within which a status is written once.
            staleness={"hold": "1s", "degrade": "8s"},
        ),
    ]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    engines = [{"name": name, "hardware": "B200x4", "model": "m"} for name in ("near", "far")]
    fleet = Fleet(parse_spec(msgspec.json.encode({"speed": 8.0, "engines": engines}), "test"))
    prometheus = PrometheusProcess(tmp_path / "prometheus", "500ms")
    folders = {name: tmp_path / name for name in ("manifests", "state")}
    (tmp_path / "token").write_text(CANARY)
    table = folders["state"] / "inf" / "headrace-chat-fe-a.yaml"
    async with contextlib.AsyncExitStack() as stack:
        await fleet.start()
        stack.push_async_callback(fleet.stop)
        router = await stack.enter_async_context(router_process("--frontend", "fe-a", "--table", str(table)))
        prometheus.scrape(
            "engines", {url.removeprefix("http://"): {"engine_name": name} for name, (url,) in fleet.urls.items()}
        )
        prometheus.scrape("routers", {router.admin.removeprefix("http://"): {}})
        await prometheus.start()
        stack.push_async_callback(prometheus.kill)
        source = {"name": "prom", "url": prometheus.url, "interval": "300ms", "timeout": "1s"}
        source["auth"] = {"bearerTokenFile": str(tmp_path / "token")}
        config = {
            "tick": "300ms",
            "metricSources": [source],
            "defaultSource": "prom",
            "routers": [{"frontend": "fe-a"}],
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        write_manifests(folders["manifests"], "all.yaml", *manifests(fleet))
        options = ("--config", str(tmp_path / "config.yaml"))
        running = await stack.enter_async_context(
            operator(folders["manifests"], folders["state"], tmp_path / "log", *options)
        )
        yield Place(fleet, prometheus, router, running, folders["state"])
    assert CANARY not in (tmp_path / "log").read_text()
    assert not [path for path in folders["state"].rglob("*") if path.is_file() and CANARY in path.read_text()]


@contextlib.asynccontextmanager
async def load(url: str, rate: float) -> AsyncIterator[None]:
    """``rate`` short requests a second; what becomes of each is not this test's question."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}

    async def ask(session: aiohttp.ClientSession) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()

    async def send() -> None:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            while True:
                group.create_task(ask(session))
                await asyncio.sleep(1 / rate)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending


async def test_a_real_prometheus(place: Place) -> None:
    """Demand shifts weights; a death needs the routers too; a pause is held; an outage walks the ladder, and ends."""
    await until(lambda: place.near() == 10_000, "the declared demand fits beside the front-end")
    async with load(place.router.url, 15.0):
        await until(lambda: 0 < place.near() < 9_000, "measured demand spills")
        await until(lambda: place.signals().get("status") == "True", "fresh signals")

        await place.fleet.set_state("near", StateChange(dead=True))
        await until(lambda: place.near() == 0, "an engine that neither Prometheus nor the router reaches is out")
        await place.fleet.restore("near")
        await until(lambda: place.near() > 0, "and back")
        await until(lambda: place.signals().get("status") == "True", "fresh again")

        place.prometheus.pause()
        await until(lambda: place.told("inf/far from prom: Held"), "held while it is paused")
        await until(lambda: "no answer within 1 s" in place.engine("far").get("message", ""), "and why")
        shares = place.near()
        place.prometheus.go_on()
        await until(lambda: place.signals().get("status") == "True", "fresh when it goes on")
        assert place.near() > 0 < shares

        await place.prometheus.kill()
        for state in ("Held", "Widened", "Unknown"):
            await until(lambda state=state: place.told(f"inf/far from prom: {state}"), state)
        await until(lambda: place.near() == 10_000, "the declared demand holds")
        assert condition(status(place.state, "routingpolicy", "chat"), "Ready")["status"] == "True"
        assert condition(status(place.state, "routingpolicy", "chat"), "CapacitySufficient")["status"] == "True"

        await place.prometheus.start(port=place.prometheus.port)
        await until(lambda: place.signals().get("status") == "True", "fresh when it is back")
        await until(lambda: 0 < place.near() < 9_000, "and demand is measured again")
