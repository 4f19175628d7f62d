"""Starts, watches and ends the demo's real processes; none of them outlives it, whichever way it ends.

Every child runs in a session of its own (Ctrl-C reaches only the demo, which then ends the children in order), dies
with the demo (``child.py``), and writes to a log file, so that no pipe can fill and block it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace_api.commands import EnvironmentFailed

READY_WITHIN = 60.0  # seconds; a first start on a busy machine compiles bytecode
POLL = 0.05
STOP_WITHIN = 5.0


class Child:
    """One process, its log, and whether its end is expected."""

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._process: Process | None = None
        self._expected = False
        self._cpu = 0.0

    async def start(self) -> None:
        """Start it (again); its output is appended to the log."""
        self._expected = False
        launcher = (sys.executable, "-m", "headrace_lab.demo.child", str(os.getpid()), *self.argv)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *launcher, stdin=PIPE, stdout=log, stderr=STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode if self._process else None

    @property
    def ended_by_itself(self) -> bool:
        """It ended, and nobody asked it to."""
        return self._process is not None and self.exit_code is not None and not self._expected

    async def ready(self, pattern: str) -> re.Match[str]:
        """Wait for a line in its log.

        Raises:
            EnvironmentFailed: it ended, or the line did not come in time; the message shows the log's end.
        """
        wanted = re.compile(pattern, re.MULTILINE)
        for _ in range(int(READY_WITHIN / POLL)):
            found = wanted.search(self.log.read_text(errors="replace"))
            if found:
                return found
            if self.exit_code is not None:
                raise EnvironmentFailed(f"{self.name} ended with {self.exit_code} before it was ready\n{self.tail()}")
            await asyncio.sleep(POLL)
        raise EnvironmentFailed(f"{self.name} was not ready within {READY_WITHIN:g} s\n{self.tail()}")

    def tail(self, lines: int = 12) -> str:
        """The end of its log, named."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- end of {self.log}:", *text])

    def send(self, number: signal.Signals) -> None:
        """Send a signal; its end is expected from now on."""
        self._expected = True
        self._cpu += self._cpu_now()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait(self) -> None:
        """Wait for its end; kill it when that takes longer than STOP_WITHIN."""
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), STOP_WITHIN)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self._process.wait()

    def cpu_seconds(self) -> float:
        """CPU time used so far, all its starts together; 0 where the system doesn't tell."""
        return self._cpu + (self._cpu_now() if self.exit_code is None and not self._expected else 0.0)

    def _cpu_now(self) -> float:
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Children:
    """All children, ended in the reverse order of their start."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._all: list[Child] = []

    def __iter__(self) -> Iterator[Child]:
        return iter(self._all)

    async def start(self, name: str, argv: Sequence[str]) -> Child:
        """Start a child under a name; its log is ``<name>.log``."""
        child = Child(name, argv, self._logs / f"{name}.log")
        self._all.append(child)
        await child.start()
        return child

    def ended_by_themselves(self) -> list[Child]:
        """Those that should still run and don't."""
        return [child for child in self._all if child.ended_by_itself]

    async def stop(self) -> None:
        """SIGTERM to all that still run, SIGKILL to what remains."""
        for child in reversed(self._all):
            if child.exit_code is None:
                child.send(signal.SIGTERM)
        await asyncio.gather(*(child.wait() for child in self._all))
