"""Watches a router of one or several processes from outside: what each holds, and whose connection a worker had."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.router_process import SERVING, ready, until_async
from support.router_processes import children, stopped

# By name of the process.
Held = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Killed:
    """A worker that was killed. ports: its clients'. at: monotonic seconds."""

    at: float
    ports: frozenset[int]

    def had(self, port: int, since: float) -> bool:
        """Whether a connection was this worker's. since: before it was begun."""
        return port in self.ports and since <= self.at


@dataclass
class Watched:
    """A router that tells what it holds (watched_router)."""

    process: asyncio.subprocess.Process
    processes: int
    url: str
    admin: str
    lines: asyncio.Queue[str]
    killed: list[Killed] = field(default_factory=list)

    async def held(self) -> Held:
        """What every process holds."""
        pids = await self._pids()
        found: Held = {}
        for name, pid in pids.items():
            if name != "parent":
                os.kill(pid, signal.SIGUSR1)
        async with asyncio.timeout(60):
            for name, pid in pids.items():
                # It has no loop, and nothing that could leak but descriptors.
                found[name] = {"descriptors": len(os.listdir(f"/proc/{pid}/fd"))} if name == "parent" else {}  # noqa: PTH208
            for _ in range(len(pids) - ("parent" in pids)):
                told = json.loads(await self.lines.get())
                name = next(name for name, pid in pids.items() if pid == told["pid"])
                found[name] = told
        return found

    async def kill(self, number: int) -> None:
        """Kill a worker, and note whose connections it had."""
        pid = (await self._pids())[f"process {number}"]
        with stopped(pid):
            while _state(pid) != "T":
                time.sleep(0.001)  # noqa: ASYNC251 - no client may go on meanwhile
            ports = client_ports(pid, int(self.url.rpartition(":")[2]))
            os.kill(pid, signal.SIGKILL)
            self.killed.append(Killed(time.monotonic(), ports))

    def had(self, port: int, since: float) -> bool:
        """Whether a connection was a killed worker's."""
        return any(each.had(port, since) for each in self.killed)

    async def _pids(self) -> dict[str, int]:
        """Of all processes, once all are ready."""
        if self.processes == 1:
            return {"router": self.process.pid}
        said: list[dict[str, Any]] = []

        async def all_ready() -> bool:
            nonlocal said
            status, detail = await ready(self.admin)
            said = detail["processes"]
            return status == 200

        await until_async(all_ready, 60)
        workers = {f"process {each['process']}": int(each["pid"]) for each in said}
        (pages,) = set(children(self.process.pid)) - set(workers.values())
        return {**workers, "pages": pages, "parent": self.process.pid}


def client_ports(pid: int, port: int) -> frozenset[int]:
    """The other ends' ports of a process's connections from ``port``, IPv4."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}  # noqa: PTH115
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ours, theirs = (int(each.partition(":")[2], 16) for each in fields[1:3])
        if ours == port and f"socket:[{fields[9]}]" in sockets:
            found.add(theirs)
    return frozenset(found - {0})


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@asynccontextmanager
async def watched_router(table: Path, processes: int = 1) -> AsyncIterator[Watched]:
    """A router by this table, which must end well and say nothing of a traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "support.watched_router",
        str(table),
        str(processes),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines: asyncio.Queue[str] = asyncio.Queue()
    found: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
    said: list[str] = []

    async def read_errors() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            text = line.decode()
            if match := SERVING.search(text):
                found.set_result((match[1], match[2]))
            if "Traceback" in text or said:
                said.append(text)

    async def read_lines() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            lines.put_nowait(line.decode())

    readers = [asyncio.create_task(read_errors()), asyncio.create_task(read_lines())]
    try:
        async with asyncio.timeout(60):
            url, admin = await found
        yield Watched(process, processes, url, admin, lines)
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
        await asyncio.gather(*readers)
        assert not said, "".join(said)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for reader in readers:
            reader.cancel()
