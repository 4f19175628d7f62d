"""A real operator process on a directory, for tests."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from headrace_api.table import RoutingTable
from headrace_operator.publisher.configmap import load
from headrace_operator.publisher.state import read_tables

BOUND = 60.0


class OperatorProcess:
    """One started operator."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    async def kill(self) -> None:
        """Kill -9, and wait for its end."""
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        """SIGTERM; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND):
            return await self.process.wait()


@asynccontextmanager
async def operator(
    manifests: Path, state: Path, log: Path, *more: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[OperatorProcess]:
    """Run ``headrace run --standalone`` until the block ends. env: none is this process's."""
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headrace_cli.main",
            "run",
            "--standalone",
            str(manifests),
            "--state",
            str(state),
            *more,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=env,
        )
    running = OperatorProcess(process, log)
    try:
        yield running
    finally:
        if process.returncode is None:
            await running.kill()


async def until(condition: Callable[[], Any], what: str, bound: float = BOUND) -> Any:
    """Wait for a condition and give its value; fails with ``what`` after a generous bound."""
    end = time.monotonic() + bound
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"did not come true within {bound:g} s: {what}"
        await asyncio.sleep(0.05)


def tables(state: Path) -> dict[str, RoutingTable]:
    """Tables that stand, by front-end."""
    return {table.frontend: table for table in read_tables(state)[0]}


def weights(state: Path, frontend: str) -> dict[str, int]:
    """Weights of a front-end's first model by engine."""
    found = tables(state).get(frontend)
    return {} if found is None else {route.engine: route.weight for route in found.models[0].classes[0].routes}


def status(state: Path, kind: str, name: str, namespace: str = "inf") -> dict[str, Any]:
    """A resource with its status as written; empty when it is not there."""
    path = state / "status" / f"{kind}-{namespace}-{name}.yaml"
    found = load(path.read_bytes()) if path.exists() else {}
    assert isinstance(found, dict)
    return found


def condition(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of a resource as written; empty when it is not there."""
    conditions: list[dict[str, Any]] = document.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def write_manifests(directory: Path, name: str, *documents: dict[str, Any]) -> None:
    """Write manifests as an editor does: into place in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{name}.tmp"
    temporary.write_text(yaml.safe_dump_all(documents))
    temporary.replace(directory / name)


def stamps(state: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file but the heartbeat: what shows any write."""
    return {
        str(path.relative_to(state)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in state.rglob("*")
        if path.is_file() and path.name != "heartbeat"
    }
