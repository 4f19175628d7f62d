"""Puts the demo's processes on their feet: engines, three routers, the operator; and takes hold of their switches.

Every port is chosen by the kernel and read from what the process says when it is ready. Manifests, state and logs
lie in one work folder, exactly as a person would lay them out for ``headrace run --standalone``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from headrace_api.commands import EnvironmentFailed
from headrace_api.names import METRIC_RETRIES
from headrace_lab.demo import manifests
from headrace_lab.demo.fleet import NAMESPACE, POLICY, fleet_spec
from headrace_lab.demo.processes import Child, Children
from headrace_lab.workload.frontends import FRONTENDS
from headrace_lab.workload.requests import Request, WorkloadSpec

TABLES_WITHIN = 60.0  # seconds for the first tables to reach every router
ROUTER_READY = r"^headrace router: serving on (http://\S+), admin (http://[^\s,]+)"
FLEET_READY = r'^\{.*"control".*\}$'
CALL_TIMEOUT = aiohttp.ClientTimeout(total=5)


class Plant:
    """The running system: addresses of its parts, and the switches of its engines."""

    def __init__(self, folder: Path, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.manifests = folder / "manifests"
        self.state = folder / "state"
        self._logs = folder / "logs"
        for path in (self.manifests, self.state, self._logs):
            path.mkdir(parents=True, exist_ok=True)
        self._session = session
        self.children = Children(self._logs)
        self.routers: dict[str, str] = {}
        self._admins: dict[str, str] = {}
        self._control = ""
        self._operator: Child | None = None

    async def start(
        self, spec: WorkloadSpec, requests: tuple[Request, ...], trips: Mapping[tuple[str, str], float]
    ) -> None:
        """Start everything and wait until every router has a table.

        Raises:
            EnvironmentFailed: something did not start; the message shows its log.
        """
        urls = await self._start_engines(fleet_spec(trips, spec.block_tokens))
        resources = [*manifests.fleet_manifests(urls, spec.duration), manifests.policy(spec, requests, trips)]
        for name, text in manifests.texts(resources).items():
            (self.manifests / name).write_text(text, encoding="utf-8")
        await asyncio.gather(*(self._start_router(frontend.name) for frontend in FRONTENDS))
        await self._start_operator(spec.duration)
        await self._tables_arrived()

    async def _start_engines(self, spec: Mapping[str, Any]) -> dict[str, list[str]]:
        path = self.folder / "engines.json"
        path.write_text(json.dumps(spec, indent=1), encoding="utf-8")
        argv = (sys.executable, "-m", "headrace_lab.engine", "--spec", str(path), "--exit-with-stdin")
        child = await self.children.start("engines", argv)
        ready = json.loads((await child.ready(FLEET_READY))[0])
        self._control = ready["control"]
        return dict(ready["engines"])

    async def _start_router(self, frontend: str) -> None:
        table = self.state / NAMESPACE / f"headrace-{POLICY}-{frontend}.yaml"
        child = await self.children.start(
            f"router-{frontend}",
            _headrace(
                *("router", "--frontend", frontend, "--table", str(table)),
                *("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--drain-delay", "0", "--grace", "1"),
            ),
        )
        ready = await child.ready(ROUTER_READY)
        self.routers[frontend], self._admins[frontend] = ready[1], ready[2]

    async def _start_operator(self, duration: float) -> None:
        config = self.folder / "operator.yaml"
        settings = manifests.operator_config(self._admins, duration)
        config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        self._operator = await self.children.start(
            "operator",
            _headrace("run", "--standalone", str(self.manifests), "--state", str(self.state), "--config", str(config)),
        )

    async def _tables_arrived(self) -> None:
        try:
            async with asyncio.timeout(TABLES_WITHIN):
                while not all(await asyncio.gather(*map(self._ready, self._admins.values()))):
                    self.check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            tails = "\n".join(child.tail() for child in self.children if child.name != "engines")
            raise EnvironmentFailed(f"no table reached every router within {TABLES_WITHIN:g} s\n{tails}") from None

    async def _ready(self, admin: str) -> bool:
        try:
            async with self._session.get(f"{admin}/readyz", timeout=CALL_TIMEOUT) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def check(self) -> None:
        """Raises EnvironmentFailed when a process ended by itself."""
        for child in self.children.ended_by_themselves():
            raise EnvironmentFailed(f"{child.name} ended with {child.exit_code}\n{child.tail()}")

    async def switch(self, engine: str, **state: object) -> None:
        """Change what an engine does: ``slow=3.0``, ``dead=True``, ``restore=True``."""
        url = f"{self._control}/lab/engines/{engine}"
        try:
            async with self._session.post(url, json=state, timeout=CALL_TIMEOUT) as answer:
                status, text = answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EnvironmentFailed(f"the engines did not take {state} for {engine}: {error!r}") from error
        if status != 200:
            raise EnvironmentFailed(f"the engines refused {state} for {engine}: {text}")

    async def queues(self) -> dict[str, tuple[int, int]]:
        """Requests running and waiting on each engine; empty when the engines don't answer in time."""
        try:
            async with self._session.get(f"{self._control}/lab/engines", timeout=CALL_TIMEOUT) as answer:
                engines = (await answer.json())["engines"]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError):
            return {}
        return {name: (sum(r["running"] for r in rs), sum(r["waiting"] for r in rs)) for name, rs in engines.items()}

    async def refused_retries(self) -> float:
        """Retries that the routers' budgets refused, over all routers; 0 where a page can't be read."""
        return sum(await asyncio.gather(*map(self._refused, self._admins.values())))

    async def _refused(self, admin: str) -> float:
        try:
            async with self._session.get(f"{admin}/metrics", timeout=CALL_TIMEOUT) as answer:
                return refused_retries(await answer.text())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return 0.0

    @property
    def operator(self) -> Child:
        """The operator's process."""
        if self._operator is None:
            raise RuntimeError("the operator is not started yet")
        return self._operator


def refused_retries(page: str) -> float:
    """The counter of refused retries on a router's metrics page."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == METRIC_RETRIES and sample.labels.get("kind") == "refused"
    )


def _headrace(*arguments: str) -> tuple[str, ...]:
    """The program itself, with this interpreter."""
    return (sys.executable, "-m", "headrace_cli.main", *arguments)
