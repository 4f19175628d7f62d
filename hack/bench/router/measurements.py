"""What is run against a proxy and what comes out: the measurements that the rows of the table are made of.

Each takes a proxy that serves and gives named figures. Rates are per second of CPU that the proxy used ("per core"),
which is the plain rate where the proxy fills its core, and is not spoilt where something else runs on it; the plain
rate stands beside it. Times in us and ms, memory in MiB, as the names say.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.router import ours
from bench.router.load import Bench, Engines, Load
from bench.router.peers import Running
from bench.router.processes import BenchFailed, pss_bytes

Figures = dict[str, float]
CONNECTIONS = 64
ANSWER_BYTES = 1030  # of engine.c's unary answer; a test holds the two together
STREAMS = 2000
NEIGHBOURS = 2
BESIDE, MOST, BEFORE = 2000, 0.9, 0.5  # requests a second, the part of them that is enough; seconds before and after
WINDOW = 0.3  # seconds: a swapped table is in force long before they are over
DIRECT = "direct"  # the peer that is no proxy: engines asked without one


@dataclass(frozen=True)
class Target:
    """What is measured: a proxy, or the engines themselves."""

    bench: Bench
    engines: Engines
    running: Running | None
    seconds: float
    warmup: float

    @property
    def name(self) -> str:
        return self.running.name if self.running else DIRECT

    def load(self, mode: str, **options: object) -> Load:
        """One run of the generator against it, refused if answers were wrong."""
        to = self.running.to if self.running else self.engines.addresses
        options = {"seconds": self.seconds, "warmup": self.warmup, "id_header": self.id_header, **options}
        done = self.bench.load(mode, to, self.pids, **options)
        done.refuse_errors(self.name)
        return done

    @property
    def pids(self) -> list[int]:
        return self.running.pids if self.running else [self.engines.child.process.pid]

    @property
    def id_header(self) -> str | None:
        return self.running.id_header if self.running else None

    @property
    def exact(self) -> bool:
        return self.running is None or self.running.exact


@dataclass(frozen=True)
class Measurement:
    """A way of loading. peers: whom by default; fresh: a new process each round; rounds: at most (0: as asked).

    alone: the other proxies, which idle on the same core, are stopped meanwhile: what their timers do there is time
    that a burst waits for, and caches that it finds empty.
    """

    id: str
    title: str
    peers: tuple[str, ...]
    run: Callable[[Target], Figures]
    fresh: bool = False
    alone: bool = False
    rounds: int = 0
    engines: int = 4


def _cpu(target: Target, done: Load) -> float:
    used = done.cpu_of(target.pids)
    if used <= 0:
        raise BenchFailed(f"{target.name}: no CPU time in {done.seconds:g} s; right would be a longer --seconds")
    return used


def unary(body: int, key: str = "header") -> Callable[[Target], Figures]:
    """Keep-alive connections, each asking again when it is answered."""

    def run(target: Target) -> Figures:
        length = ANSWER_BYTES if target.exact else 0
        done = target.load("unary", connections=CONNECTIONS, body=body, length=length, ending="}", key=key)
        cpu = _cpu(target, done)
        return {
            "per_core": done.requests / cpu,
            "rate": done.requests / done.seconds,
            "cpu_us": cpu / done.requests * 1e6,
            "core": cpu / done.seconds,
            "p50_ms": done.latency_us["p50"] / 1000,
            "p99_ms": done.latency_us["p99"] / 1000,
        }

    return run


def affinity(target: Target) -> Figures:
    """The same load, its key where this router's table looks for it."""
    return unary(2048, "field" if target.name == "ours-field" else "header")(target)


def windowed(target: Target) -> Figures:
    """256 streams with at most four events of each under way between engine and client, one a write."""
    window = {"window": 4, "counts": target.bench.counts}
    return _chunks(target, target.load("stream", connections=256, chunks=20_000, **window))


def saturated(target: Target) -> Figures:
    """The same while others take two thirds of the proxy's core, so that the proxy is what the streams wait for."""
    bench = target.bench
    idle_hands = [sys.executable, "-c", "while True: pass"]
    busy = [bench.children.start(f"neighbour-{n}", idle_hands, bench.proxy_cores) for n in range(NEIGHBOURS)]
    try:
        return windowed(target)
    finally:
        bench.children.end(*busy)


def bulk(target: Target) -> Figures:
    """32 streams as fast as they are taken: 16 events a write, so that the proxy always finds more to read."""
    return _chunks(target, target.load("stream", connections=32, chunks=20_000))


def paced(target: Target) -> Figures:
    """400 streams with an event each 20 ms, as the steps of four engines' batches."""
    return _chunks(target, target.load("stream", connections=400, chunks=100_000, pace=20))


def _chunks(target: Target, done: Load) -> Figures:
    cpu = _cpu(target, done)
    if not done.events:
        raise BenchFailed(f"{target.name}: no event came")
    return {
        "per_core": done.events / cpu,
        "rate": done.events / done.seconds,
        "cpu_s_100k": cpu / done.events * 1e5,
        "core": cpu / done.seconds,
    }


def burst(target: Target) -> Figures:
    """40 requests at one time, each 100 ms, to engines whose first token takes 20 ms."""
    done = target.load("burst", connections=40, chunks=4, first=20, pace=1, every=100)
    if done.samples < 40:
        raise BenchFailed(
            f"{target.name}: {done.samples} first events in {done.seconds:.1f} s; right would be 40 or more"
        )
    return {"p50_ms": done.latency_us["p50"] / 1000, "p99_ms": done.latency_us["p99"] / 1000}


def burst_at_work(target: Target) -> Figures:
    """The same beside other requests, so that code and data that requests need are in the caches when it comes."""
    to = target.running.to if target.running else target.engines.addresses
    options = {"seconds": target.seconds + target.warmup + BEFORE, "warmup": 0, "id_header": target.id_header}
    child = target.bench.begin("unary", to, [], connections=16, rate=BESIDE, **options)
    figures = burst(target)
    beside = target.bench.finish(child)
    beside.refuse_errors(f"{target.name}, the others")
    if beside.requests < MOST * BESIDE * beside.seconds:
        raise BenchFailed(
            f"{target.name}: {beside.requests / beside.seconds:.0f} others a second; right would be {BESIDE}"
        )
    return figures


def memory(target: Target) -> Figures:
    """PSS with 2,000 streams open, over PSS when it has served a little and is idle again."""
    assert target.running is not None
    target.load("unary", connections=8, seconds=1.0, warmup=0.2)
    time.sleep(0.5)
    idle = pss_bytes(target.running.pids)
    options = {
        "connections": STREAMS,
        "chunks": 100_000,
        "pace": 500,
        "body": 2048,
        "seconds": max(3.0, target.seconds),
    }
    child = target.bench.begin("hold", target.running.to, [], id_header=target.id_header, **options)
    assert child.process.stdout is not None
    child.process.stdout.readline()
    time.sleep(min(2.0, target.seconds))
    full = pss_bytes(target.running.pids)
    done = target.bench.finish(child)
    done.refuse_errors(target.name)
    if done.open < STREAMS:
        raise BenchFailed(f"{target.name}: {done.open} of {STREAMS} streams opened")
    mib = 2**20
    return {
        "over_idle_mib": (full - idle) / mib,
        "idle_mib": idle / mib,
        "kib_a_stream": (full - idle) / 1024 / STREAMS,
    }


def swaps(target: Target) -> Figures:
    """Tables of 1,000 engines swapped under load: the loop's longest pause around each swap, and around moments without
    one between them (the machine has pauses of its own), and the latest answer of a paced probe."""
    running = target.running
    assert running is not None
    folder, port = target.bench.children.folder, running.port
    place, said = ours.table_place(folder, port), folder / "pauses.txt"
    options: dict[str, object] = {
        "connections": CONNECTIONS,
        "rate": 1000,
        "sessions": 1000,
        "id_header": target.id_header,
    }
    options |= {"seconds": max(8.0, target.seconds), "warmup": target.warmup}

    def pause(swapped: Callable[[], None]) -> float:
        _signal_and_wait(running, said)
        swapped()
        time.sleep(WINDOW)
        _signal_and_wait(running, said)
        return float(said.read_text())

    pids = target.pids
    target.bench.load("unary", running.to, pids, **options)
    revision = ours.revision_in_force(folder, port)
    count = 2 * round(max(8.0, target.seconds) + target.warmup) + 1
    tables = [ours.table(target.engines, revision=revision + n, turn=revision + n) for n in range(1, count)]
    quiet = target.bench.load("unary", running.to, pids, **options)
    child = target.bench.begin("unary", running.to, pids, **options)
    calm: list[float] = []
    moved: list[float] = []
    while child.process.poll() is None and len(moved) < len(tables):
        calm.append(pause(lambda: None))
        moved.append(pause(partial(ours.swap, place, tables[len(moved)])))
    done = target.bench.finish(child)
    _until_in_force(folder, port, revision + len(moved))
    for load in (quiet, done):
        load.refuse_errors(target.name)
    return {
        "inside_ms": statistics.median(moved),
        "inside_quiet_ms": statistics.median(calm),
        "inside_worst_ms": max(moved),
        "inside_worst_quiet_ms": max(calm),
        "outside_ms": done.latency_us["max"] / 1000,
        "outside_quiet_ms": quiet.latency_us["max"] / 1000,
        "outside_p50_ms": done.latency_us["p50"] / 1000,
        "swaps": float(len(moved)),
    }


def _signal_and_wait(running: Running, said: Path) -> None:
    said.unlink(missing_ok=True)
    os.kill(running.child.process.pid, signal.SIGUSR1)
    _until(said.exists, f"{running.name} does not say how long its loop paused")


def _until_in_force(folder: Path, port: int, revision: int) -> None:
    what = f"the last table, revision {revision}, was not applied"
    _until(lambda: ours.revision_in_force(folder, port) == revision, what)


def _until(condition: Callable[[], bool], fault: str) -> None:
    until = time.monotonic() + 20
    while not condition():
        if time.monotonic() > until:
            raise BenchFailed(f"{fault} within 20 s")
        time.sleep(0.05)


LLM = ("sglang", "sglang-rr", "vllm", "vllm-rr")
GENERAL = ("ours", "floor", "envoy", "nginx", "haproxy")
BOTH_FORMS = ("ours", "ours-source", *GENERAL[1:])
MEASUREMENTS = (
    Measurement("unary2k", "unary, 2 KiB", (*BOTH_FORMS, *LLM, "litellm"), unary(2048)),
    Measurement("unary16k", "unary, 16 KiB", (*BOTH_FORMS, "sglang", "vllm"), unary(16384)),
    Measurement("sse-saturated", "SSE, saturated", (*BOTH_FORMS, "sglang", "vllm"), saturated),
    Measurement("sse-windowed", "SSE, as fast as the load can (not judged)", (*GENERAL, "sglang", "vllm"), windowed),
    Measurement("sse-paced", "SSE, paced", (*GENERAL, "sglang", "vllm"), paced),
    Measurement("sse-bulk", "SSE, sockets always full (not judged)", (*GENERAL, "sglang", "vllm"), bulk),
    Measurement(
        "ttft", "time to first token, 40 at once, idle before", (DIRECT, *GENERAL, "sglang", "vllm"), burst, alone=True
    ),
    Measurement(
        "ttft-at-work",
        f"time to first token, 40 at once beside {BESIDE:,} others a second",
        (DIRECT, *GENERAL, "sglang", "vllm"),
        burst_at_work,
        alone=True,
    ),
    Measurement("memory", "2,000 open streams", (*GENERAL, "sglang", "vllm"), memory, fresh=True, rounds=3),
    Measurement("affinity", "affinity by body field", ("ours", "ours-field"), affinity),
    Measurement("access-log", "access log on, into a file (not judged)", ("ours", "ours-log"), unary(2048)),
    Measurement("swap", "table swap, 1,000 engines", ("ours-1000",), swaps, engines=1000),
    Measurement("processes", "2 processes", ("ours", "ours-2"), unary(2048)),
)
