"""Children of the benchmark: started on given cores, read about in /proc, ended by their ids whatever happens.

Beside what is measured. Every child gets a session of its own, so that Ctrl-C reaches this process alone, which then
ends them all; nothing is ever ended by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

END_WITHIN = 5.0  # seconds from SIGTERM to SIGKILL
LOOPBACK = "127.0.0.1"


class BenchFailed(Exception):
    """What was to be measured could not be; the message is for people."""


@dataclass(eq=False)
class Child:
    """A started process, its log, and who it is."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pids(self) -> list[int]:
        """It and everything below it that lives now."""
        return tree(self.process.pid)

    def check(self) -> None:
        """Raises BenchFailed if it ended."""
        if self.process.poll() is not None:
            raise BenchFailed(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-1500:].strip() or "nothing in its log"


class Children:
    """All children of a run; a context that ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(*self._all)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        cores: set[int],
        env: Mapping[str, str] | None = None,
        *,
        out: bool = False,
    ) -> Child:
        """Start ``argv`` on ``cores``. Its log is FOLDER/NAME.log; out: standard output is a pipe to read."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as into:
            process = subprocess.Popen(
                ["taskset", "-c", ",".join(map(str, sorted(cores))), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if out else into,
                stderr=into,
                env={**os.environ, **(env or {})},
                cwd=self.folder,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._all.append(child)
        return child

    def end(self, *children: Child) -> None:
        """End these: SIGTERM, and after a while SIGKILL, to each and to what it started."""
        living = {child: child.pids for child in children if child in self._all}
        for pids in living.values():
            _signal(pids, signal.SIGTERM)
        until = time.monotonic() + END_WITHIN
        for child, pids in living.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - time.monotonic()))
            _signal(sorted(_session(child.process.pid).union(child.pids).intersection(pids)), signal.SIGKILL)
            child.process.wait()
            if child.process.stdout:
                child.process.stdout.close()
            self._all.remove(child)


def _signal(pids: Sequence[int], what: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


def _stats() -> dict[int, tuple[int, int]]:
    """Pid -> (parent, session) of all processes."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(entry.name)] = (int(fields[1]), int(fields[3]))
    return found


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """These processes don't run meanwhile; one that has ended is left out."""
    try:
        _send(pids, signal.SIGSTOP)
        yield
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def tree(pid: int) -> list[int]:
    """``pid`` and its descendants that live now."""
    parents = {child: parent for child, (parent, _) in _stats().items()}
    found = [pid] if pid in parents else []
    for known in found:
        found.extend(child for child, parent in parents.items() if parent == known)
    return found


def _session(leader: int) -> set[int]:
    return {pid for pid, (_, session) in _stats().items() if session == leader}


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_for_port(child: Child, port: int, seconds: float) -> None:
    """Until something accepts connections there.

    Raises:
        BenchFailed: the child ended, or the time is over.
    """
    until = time.monotonic() + seconds
    while True:
        child.check()
        try:
            socket.create_connection((LOOPBACK, port), 1.0).close()
        except OSError:
            if time.monotonic() > until:
                raise BenchFailed(f"{child.name} does not listen after {seconds:g} s: {child.last_words()}") from None
            time.sleep(0.05)
        else:
            return


def pss_bytes(pids: Sequence[int]) -> int:
    """Proportional set size of processes: shared pages are counted once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total
