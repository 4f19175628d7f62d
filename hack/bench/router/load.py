"""The load generator's and the engines' programs as Python calls; what they print, read and judged.

load.c and engine.c do the work; this only starts them, and refuses a figure that errors helped to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.router.processes import BenchFailed, Child, Children

WRONG_SHARE = 0.001  # of answers that may be wrong before a figure is refused


@dataclass(frozen=True)
class Load:
    """What one run of load.c measured. cpu: seconds by pid, and "load" for the generator itself."""

    requests: int
    events: int
    seconds: float
    errors: Mapping[str, int]
    first_error: str
    latency_us: Mapping[str, float]
    cpu: Mapping[str, float]
    reconnects: int
    late: int
    open: int
    samples: int

    def cpu_of(self, pids: Sequence[int]) -> float:
        """CPU seconds of these processes in the window."""
        return sum(self.cpu.get(str(pid), 0.0) for pid in pids)

    def refuse_errors(self, who: str) -> None:
        """Raises BenchFailed if more than WRONG_SHARE of the answers were wrong, or there were none."""
        wrong = sum(self.errors.values())
        if wrong > WRONG_SHARE * (self.requests + self.open) or not (self.requests or self.events or self.open):
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.errors.items() if count)
            if not kinds:
                raise BenchFailed(f"{who}: no answer within {self.seconds:.1f} s")
            raise BenchFailed(f"{who}: {kinds} of {self.requests} answers; the first: {self.first_error[:300]!r}")


def parse_load(text: str) -> Load:
    """The result line of load.c.

    Raises:
        BenchFailed: it is not one, or has a number that is none.
    """
    try:
        read: dict[str, Any] = json.loads(text, parse_constant=_no_number)
        made = Load(
            requests=int(read["requests"]),
            events=int(read["events"]),
            seconds=float(read["seconds"]),
            errors={str(name): int(count) for name, count in read["errors"].items()},
            first_error=str(read["first_error"]),
            latency_us={str(name): float(value) for name, value in read["latency_us"].items()},
            cpu={str(pid): float(value) for pid, value in read["cpu"].items()},
            reconnects=int(read["reconnects"]),
            late=int(read["late"]),
            open=int(read["open"]),
            samples=int(read["samples"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise BenchFailed(f"load: no result: {text[:200]!r} ({fault})") from None
    if not math.isfinite(made.seconds) or made.seconds <= 0:
        raise BenchFailed(f"load: seconds {made.seconds}: right would be above 0")
    return made


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


@dataclass(frozen=True)
class Engines:
    """The fleet of fake engines: one process, an address each, one port."""

    child: Child
    count: int
    port: int

    @property
    def hosts(self) -> list[str]:
        return [f"127.9.{i // 250}.{1 + i % 250}" for i in range(self.count)]

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{self.port}" for host in self.hosts]


@dataclass(frozen=True)
class Bench:
    """What every measurement needs: programs, children, cores."""

    tools: Path
    children: Children
    proxy_cores: set[int]
    load_cores: set[int]

    @property
    def counts(self) -> Path:
        """The file through which load and engines share what each stream's client has taken."""
        return self.children.folder / "counts"

    def engines(self, count: int) -> Engines:
        """Start the fake engines."""
        command = [str(self.tools / "engine"), "--engines", str(count), "--counts", str(self.counts)]
        child = self.children.start(f"engine-{count}", command, {max(self.load_cores)}, out=True)
        assert child.process.stdout is not None
        line = child.process.stdout.readline().split()
        if len(line) != 2 or line[0] != b"listening":
            raise BenchFailed(f"the fake engines do not listen: {child.last_words()}")
        return Engines(child, count, int(line[1]))

    def begin(self, mode: str, to: Sequence[str], pids: Sequence[int], **options: object) -> Child:
        """Start load.c; ``options`` by its names, underscores for dashes."""
        command = [str(self.tools / "load"), mode, "--to", ",".join(to)]
        if pids:
            command += ["--cpu", ",".join(map(str, pids))]
        for name, value in options.items():
            if value is not None:
                command += [f"--{name.replace('_', '-')}", str(value)]
        return self.children.start("load", command, {min(self.load_cores)}, out=True)

    def finish(self, child: Child) -> Load:
        """Wait for its result."""
        out, _ = child.process.communicate(timeout=700)
        self.children.end(child)
        if child.process.returncode:
            raise BenchFailed(f"load ended with {child.process.returncode}: {child.last_words()}")
        lines = out.decode().splitlines()
        return parse_load(lines[-1] if lines else "")

    def load(self, mode: str, to: Sequence[str], pids: Sequence[int], **options: object) -> Load:
        """Start it and wait."""
        return self.finish(self.begin(mode, to, pids, **options))
