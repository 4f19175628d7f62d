"""Where our router's time goes: cProfile over a loaded window, by function and by package, in us a request.

The profiler makes Python calls dearer than C ones, so shares mislead about small functions; the plain CPU per request
stands beside it. If perf is there, the kernel's and the libraries' shares come from it, from a run without cProfile.
"""

from __future__ import annotations

import os
import pstats
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.router import ours
from bench.router.load import Bench, Engines
from bench.router.measurements import CONNECTIONS, Target
from bench.router.measurements import MEASUREMENTS as ALL
from bench.router.peers import Peer, Running
from bench.router.processes import BenchFailed

SHOWN = 45


def profile(bench: Bench, seconds: float) -> str:
    """Run both and return the text."""
    engines = bench.engines(4)
    plain = Peer("ours", ours.command(), ours.version).start(bench, engines)
    figures = ALL[0].run(Target(bench, engines, plain, seconds, 1.0))
    parts = [
        f"unary 2 KiB: {figures['cpu_us']:.1f} us CPU a request, {figures['rate']:,.0f} requests/s, without a profiler"
    ]
    if shutil.which("perf"):
        parts += ["", "perf: share of CPU samples", *_perf(bench, plain, seconds)]
    bench.children.end(plain.child)
    return "\n".join([*parts, "", *_cprofile(bench, engines, seconds)])


def _load(bench: Bench, running: Running, seconds: float) -> Any:
    return bench.begin("unary", running.to, running.pids, connections=CONNECTIONS, seconds=seconds, warmup=0.1)


def _cprofile(bench: Bench, engines: Engines, seconds: float) -> list[str]:
    stats_file = bench.children.folder / "ours.pstats"
    peer = Peer("ours-profiled", ours.command(inside=("--profile", str(stats_file))), ours.version)
    running = peer.start(bench, engines)
    bench.finish(_load(bench, running, 1.0))
    os.kill(running.child.process.pid, signal.SIGUSR1)
    done = bench.finish(_load(bench, running, seconds))
    os.kill(running.child.process.pid, signal.SIGUSR2)
    until = time.monotonic() + 20
    while not stats_file.exists():
        if time.monotonic() > until:
            raise BenchFailed("the profile was not written within 20 s")
        time.sleep(0.05)
    bench.children.end(running.child)
    return profile_lines(pstats.Stats(str(stats_file)).stats, done.requests)  # type: ignore[attr-defined]


def profile_lines(stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]], requests: int) -> list[str]:
    """Functions and packages by own time, us a request. ``stats`` as pstats keeps them."""
    own = sorted(((entry[2], entry[1], where) for where, entry in stats.items()), reverse=True)
    packages: dict[str, float] = defaultdict(float)
    for seconds, _, where in own:
        packages[package_of(where)] += seconds
    each = 1e6 / max(1, requests)
    lines = [f"cProfile over about {requests} requests: own time by package, us a request"]
    ordered = sorted(packages.items(), key=lambda item: -item[1])
    lines += [f"{seconds * each:9.2f}  {name}" for name, seconds in ordered if seconds * each >= 0.05]
    lines += ["", "own time by function: us a request, calls a request"]
    for seconds, calls, (file, line, name) in own[:SHOWN]:
        place = f"{Path(file).parent.name}/{Path(file).name}:{line} " if line else ""
        lines.append(f"{seconds * each:9.2f} {calls / max(1, requests):8.2f}  {place}{name}")
    return lines


def package_of(where: tuple[str, int, str]) -> str:
    """Ours by sub-package, others by distribution, C functions by their type."""
    file, _, name = where
    if found := re.search(r"(headrace_[a-z]+)/(\w+)/\w+\.py$", file):
        return f"{found[1]}.{found[2]}"
    if found := re.search(r"site-packages/([A-Za-z0-9_]+)", file):
        return found[1]
    if file == "~":
        found = re.search(r"'(\w+)' objects|built-in method (\w+)", name)
        return f"C: {found[1] or found[2]}" if found else "C"
    return Path(file).parent.name if "/asyncio/" in file else Path(file).stem


def _perf(bench: Bench, running: Running, seconds: float) -> list[str]:
    data = bench.children.folder / "perf.data"
    child = _load(bench, running, seconds)
    record = ["perf", "record", "-q", "-F", "999", "-o", str(data), "-p", ",".join(map(str, running.pids))]
    subprocess.run([*record, "--", "sleep", str(seconds)], capture_output=True, check=False)
    bench.finish(child)
    lines = []
    for by in ("dso", "dso,symbol"):
        report = ["perf", "report", "-q", "-i", str(data), "--stdio", "--sort", by, "--percent-limit", "0.7"]
        said = subprocess.run(report, capture_output=True, text=True, check=False).stdout
        lines += [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("#")][:40]
        lines.append("")
    return lines
