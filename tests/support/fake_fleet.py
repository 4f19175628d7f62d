"""Metrics pages of engines and routers on loopback, driven by a test: what the operator scrapes, without engines."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class FakeEngine:
    """An engine of model m: its counters grow evenly with time; ``tbot``: seconds a token from now on."""

    rate: float = 10.0
    tbot: float = 0.01
    started: float = field(default_factory=time.monotonic)
    at: float = field(default_factory=time.monotonic)
    requests: float = 0.0
    seconds: float = 0.0

    def page(self) -> str:
        now = time.monotonic()
        grown = (now - self.at) * self.rate
        self.at, self.requests = now, self.requests + grown
        self.seconds += grown * 50 * self.tbot
        lines = {
            "vllm:num_requests_running": 4,
            "vllm:num_requests_waiting": 0,
            "vllm:request_success_total": self.requests,
            "vllm:time_to_first_token_seconds_sum": self.requests * 0.1,
            "vllm:time_to_first_token_seconds_count": self.requests,
            "vllm:inter_token_latency_seconds_sum": self.seconds,
            "vllm:inter_token_latency_seconds_count": self.requests * 50,
            "vllm:generation_tokens_total": self.requests * 50,
        }
        return "".join(f'{name}{{model_name="m"}} {value}\n' for name, value in lines.items())


@dataclass
class FakeRouter:
    """A router of one front-end that is offered ``rate`` requests/s of model m under policy inf/chat."""

    frontend: str
    rate: float
    at: float = field(default_factory=time.monotonic)
    offered: float = 0.0

    def page(self) -> str:
        now = time.monotonic()
        self.offered += (now - self.at) * self.rate
        self.at = now
        whose = f'policy_namespace="inf",policy="chat",frontend="{self.frontend}"'
        labels = f'{whose},model="m",priority="default",prompt_class="0"'
        return f"headrace_offered_requests_total{{{labels}}} {self.offered}\n"


class FakeFleet:
    """Serves pages; each thing has its own port, kept over kill and restore."""

    def __init__(self) -> None:
        self._runners: dict[str, web.AppRunner] = {}
        self.urls: dict[str, str] = {}
        self.things: dict[str, FakeEngine | FakeRouter] = {}

    async def add(self, name: str, thing: FakeEngine | FakeRouter) -> str:
        """Serve a thing's page; gives its url."""
        self.things[name] = thing
        await self._serve(name, 0)
        return self.urls[name]

    async def kill(self, name: str) -> None:
        """Close the listener and every connection: connects are refused."""
        await self._runners.pop(name).cleanup()

    async def restore(self, name: str) -> None:
        """Listen again on the same port."""
        await self._serve(name, int(self.urls[name].rpartition(":")[2]))

    async def stop(self) -> None:
        """Close everything."""
        for name in list(self._runners):
            await self.kill(name)

    async def _serve(self, name: str, port: int) -> None:
        async def page(_: web.Request) -> web.Response:
            return web.Response(text=self.things[name].page())

        app = web.Application()
        app.router.add_get("/metrics", page)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self._runners[name] = runner
        self.urls[name] = f"http://127.0.0.1:{runner.addresses[0][1]}"
