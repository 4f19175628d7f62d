"""Where our router's CPU time goes, in us a request: stacks sampled by CPU time in a loaded window, and what perf says.

A share of the samples times the CPU time per request of the same window. perf (if it is there) tells the kernel's, the
interpreter's and the libraries' shares apart, which Python's stacks can't.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.router import ours
from bench.router.load import Bench, Load
from bench.router.measurements import CONNECTIONS
from bench.router.peers import Peer, Running
from bench.router.processes import BenchFailed, Child

LOADS: dict[str, dict[str, object]] = {
    "unary2k": {"body": 2048},
    "unary16k": {"body": 16384},
    "sse-paced": {"connections": 400, "chunks": 100_000, "pace": 20},
}
FEATURES = (  # of the ledger, by the first that a module's name begins with
    ("clients' connections: reading, framing", ("headrace_router.listener",)),
    ("heads, header rules, chunks", ("headrace_router.http1",)),
    (
        "body: model, key, what it needs",
        tuple(f"headrace_router.core.{name}" for name in ("body", "facts", "json_text")),
    ),
    ("pick, affinity, guard, limits, ejection, retry budget", ("headrace_router.core",)),
    ("engines' connections: pool, sending, reading", ("headrace_router.upstream",)),
    ("a request's course: attempt, relay, answer", ("headrace_router.proxy",)),
    ("metrics, usage, traces", ("headrace_router.telemetry",)),
    ("else", ("",)),
)
SHOWN = 40
AT_LEAST = 10.0  # seconds: 250 samples a second of CPU are few

Where = tuple[str, int, str]
Stacks = Sequence[tuple[int, Sequence[Where]]]


def profile(bench: Bench, seconds: float, rows: Sequence[str], key: str) -> str:
    """Each load that was asked for, as text.

    Raises:
        BenchFailed: the router did not write its samples.
    """
    seconds = max(seconds, AT_LEAST)
    samples = bench.children.folder / "samples"
    command = ours.command(key="field" if key == "field" else "header", inside=("--samples", str(samples)))
    # Compiled functions have no frames to sample.
    running = Peer("ours", command, ours.version, form="source").start(bench, bench.engines(4))
    parts = []
    for name, options in LOADS.items():
        if name in rows or (not rows and name == "unary2k"):
            samples.unlink(missing_ok=True)
            parts += _one(bench, running, name, {**options, "seconds": seconds, "key": key}, samples)
    return "\n".join(parts)


def _one(bench: Bench, running: Running, name: str, options: dict[str, object], samples: Path) -> list[str]:
    pid = running.child.process.pid
    load = _begin(bench, running, options)
    perf = _perf(bench, running, AT_LEAST / 2)
    bench.finish(load)
    os.kill(pid, signal.SIGUSR1)
    done = bench.finish(_begin(bench, running, options))
    os.kill(pid, signal.SIGUSR2)
    until = time.monotonic() + 20
    while not samples.exists():
        if time.monotonic() > until:
            raise BenchFailed("the router's samples were not written within 20 s")
        time.sleep(0.05)
    each, what = _each(done, running)
    head = f"{name}: {each:.1f} us CPU {what}, {done.seconds:g} s"
    return [head, *perf, *profile_lines(read_stacks(samples.read_text()), each), ""]


def _begin(bench: Bench, running: Running, options: dict[str, object]) -> Child:
    mode = "stream" if "chunks" in options else "unary"
    return bench.begin(mode, running.to, running.pids, **{"connections": CONNECTIONS, "warmup": 0.2, **options})


def _each(done: Load, running: Running) -> tuple[float, str]:
    count, what = (done.requests, "a request") if not done.events else (done.events, "an event")
    return done.cpu_of(running.pids) / max(1, count) * 1e6, what


def read_stacks(text: str) -> Stacks:
    """What inside.py wrote: a count and a stack a line, the innermost function first."""
    return [
        (int(count), [(str(file), int(line), str(name)) for file, line, name in stack])
        for count, stack in map(json.loads, text.splitlines())
    ]


def profile_lines(stacks: Stacks, each: float) -> list[str]:
    """Own time by module and by function, and time with all that a function called. ``each``: us of all samples."""
    own: Counter[Where] = Counter()
    whole: Counter[Where] = Counter()
    modules: Counter[str] = Counter()
    for count, stack in stacks:
        if stack:
            own[stack[0]] += count
            modules[module_of(stack[0][0])] += count
        for where in set(stack):
            whole[where] += count
    total = sum(count for count, _ in stacks)
    scale = each / max(1, total)
    lines = [f"{total} samples; own time by feature, us"]
    lines += [f"{count * scale:9.2f}  {name}" for name, count in by_feature(modules).items()]
    lines += ["own time by module, us"]
    lines += [f"{count * scale:9.2f}  {name}" for name, count in modules.most_common() if count * scale >= 0.1]
    lines += ["own time and time with what it calls, by function, us"]
    ordered = sorted(whole, key=lambda where: (-own[where], -whole[where]))
    for where in ordered[:SHOWN]:
        file, line, name = where
        lines.append(f"{own[where] * scale:9.2f} {whole[where] * scale:9.2f}  {module_of(file)}:{line} {name}")
    return lines


def by_feature(modules: Mapping[str, int]) -> dict[str, int]:
    """The ledger: samples by feature, in its order."""
    found = {name: 0 for name, _ in FEATURES}
    for module, count in modules.items():
        found[next(name for name, starts in FEATURES if module.startswith(starts))] += count
    return found


def module_of(file: str) -> str:
    """Ours as package.module below the root, others by distribution."""
    if found := re.search(r"(headrace_[a-z]+/.*)\.py$", file):
        return found[1].replace("/", ".")
    if found := re.search(r"site-packages/([A-Za-z0-9_]+)", file):
        return found[1]
    return "asyncio" if "/asyncio/" in file else Path(file).stem


def _perf(bench: Bench, running: Running, seconds: float) -> list[str]:
    if not shutil.which("perf"):
        return []
    data = bench.children.folder / "perf.data"
    record = ["perf", "record", "-q", "-F", "999", "-o", str(data), "-p", ",".join(map(str, running.pids))]
    subprocess.run([*record, "--", "sleep", str(seconds)], capture_output=True, check=False)
    report = ["perf", "report", "-q", "-i", str(data), "--stdio", "--sort", "dso", "--percent-limit", "0.7"]
    said = subprocess.run(report, capture_output=True, text=True, check=False).stdout
    return ["shares by perf: " + ", ".join(" ".join(line.split()) for line in said.splitlines() if line.strip())]
