"""One run: peers started, measured in turn in rounds, ended; what comes out is a Result.

In each round every peer of a measurement has its turn once, in an order that moves on by one from round to round, so
that what changes on the machine meets all of them. A peer that fails is named with its fault; the others go on.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.router.figures import rotated
from bench.router.load import Bench, Engines
from bench.router.machine import Machine
from bench.router.measurements import CONNECTIONS, DIRECT, Figures, Measurement, Target
from bench.router.peers import Peer, Running
from bench.router.processes import BenchFailed, stopped
from bench.router.result import Measured, PeerRounds, Result, rows


@dataclass(frozen=True)
class Plan:
    """What to run."""

    measurements: Sequence[Measurement]
    peers: Mapping[str, Peer]
    only: Sequence[str]
    rounds: int
    seconds: float
    warmup: float

    def wanted(self, measurement: Measurement) -> list[str]:
        """Its peers that were asked for; a variant goes with the peer it is one of."""
        added = ["other"] if "other" in self.peers and "envoy" in measurement.peers else []
        names = [*measurement.peers, *added]
        return [
            name for name in names if not self.only or {name, name.partition("-")[0]} & {*self.only, DIRECT, "other"}
        ]


def say(text: str) -> None:
    """Progress, beside the result."""
    print(f"bench-router: {text}", file=sys.stderr, flush=True)


def run(bench: Bench, plan: Plan, machine: Machine) -> Result:
    """Measure everything that the plan names."""
    started = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fleets: dict[int, Engines] = {}
    measured = []
    for measurement in plan.measurements:
        if measurement.engines not in fleets:
            fleets[measurement.engines] = bench.engines(measurement.engines)
        measured.append(_Turns(bench, plan, measurement, fleets[measurement.engines]).run())
    return Result(
        started=started,
        commit=commit(),
        rounds=plan.rounds,
        seconds=plan.seconds,
        machine=machine,
        versions={name: plan.peers[name].version() for name in _seen(measured) if name in plan.peers},
        ceiling=ceiling(bench, plan),
        measured=measured,
        rows=rows(measured),
    )


def _seen(measured: Sequence[Measured]) -> list[str]:
    return sorted({name for one in measured for name in one.peers})


@dataclass
class _Turns:
    """One measurement: its peers, started and in turn."""

    bench: Bench
    plan: Plan
    measurement: Measurement
    engines: Engines
    faults: dict[str, str] = field(default_factory=dict)
    running: dict[str, Running | None] = field(default_factory=dict)

    def run(self) -> Measured:
        names = self.plan.wanted(self.measurement)
        rounds = min(self.plan.rounds, self.measurement.rounds or self.plan.rounds)
        results: dict[str, list[Figures | None]] = {name: [] for name in names}
        load = []
        try:
            for name in names:
                self._start(name)
            for turn in range(rounds):
                load.append(round(os.getloadavg()[0], 2))
                for name in rotated(names, turn):
                    results[name].append(self._measure(name))
                say(f"{self.measurement.title}: round {turn + 1} of {rounds}, load {load[-1]:g}")
        finally:
            self.bench.children.end(*(one.child for one in self.running.values() if one))
        return Measured(
            id=self.measurement.id,
            title=self.measurement.title,
            load=load,
            peers={
                name: PeerRounds(figures=_by_figure(results[name]), fault=self.faults.get(name, "")) for name in names
            },
        )

    def _start(self, name: str) -> None:
        if name == DIRECT or name in self.running or self.plan.peers[name].lacks():
            self.running.setdefault(name, None)
            if name != DIRECT and not self.running[name]:
                self.faults[name] = self.plan.peers[name].lacks() or ""
            return
        try:
            self.running[name] = self.plan.peers[name].start(self.bench, self.engines)
        except BenchFailed as fault:
            self._note(name, fault)

    def _measure(self, name: str) -> Figures | None:
        running = self.running.get(name)
        if name != DIRECT and running is None:
            return None
        target = Target(self.bench, self.engines, running, self.plan.seconds, self.plan.warmup)
        others = [one for each, one in self.running.items() if one and each != name] if self.measurement.alone else []
        try:
            with stopped([pid for one in others for pid in one.pids]):
                figures = self.measurement.run(target)
        except BenchFailed as fault:
            self._note(name, fault)
            figures = None
        if running and (self.measurement.fresh or running.child.process.poll() is not None):
            self.bench.children.end(running.child)
            del self.running[name]
            self._start(name)
        return figures

    def _note(self, name: str, fault: BenchFailed) -> None:
        self.faults[name] = str(fault)
        say(f"{self.measurement.title}: {fault}")


def _by_figure(results: Sequence[Figures | None]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for one in results if one for name in one)
    return {name: [one.get(name) if one else None for one in results] for name in names}


def ceiling(bench: Bench, plan: Plan) -> dict[str, float]:
    """What load and engines can do without a proxy, in the measurements that fill a core; and the same by wrk."""
    found = {}
    engines = bench.engines(4)
    for measurement in plan.measurements:
        if measurement.id in ("unary2k", "unary16k", "sse-saturated"):
            target = Target(bench, engines, None, plan.seconds, plan.warmup)
            found[measurement.id] = round(measurement.run(target)["rate"], 1)
            if measurement.id == "unary2k":
                found["unary2k by wrk"] = wrk_rate(bench, engines, plan.seconds)
    bench.children.end(engines.child)
    return found


def wrk_rate(bench: Bench, engines: Engines, seconds: float) -> float:
    """Requests a second by wrk, as a second witness of what the engines can do; it checks less."""
    script = bench.children.folder / "post.lua"
    body = '{"messages":[{"role":"user","content":"' + "x" * 1960 + '"}],"model":"model-a","stream":false}'
    script.write_text(
        f"wrk.method='POST'\nwrk.body='{body}'\nwrk.headers['Content-Type']='application/json'\n"
        "done=function(s) io.write('answers '..s.requests..' '..s.duration..'\\n') end\n"
    )
    url = f"http://{engines.addresses[0]}/v1/chat/completions"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    child = bench.children.start("wrk", command, {min(bench.load_cores)}, out=True)
    out, _ = child.process.communicate(timeout=120)
    bench.children.end(child)
    words = next((line.split() for line in out.decode().splitlines() if line.startswith("answers ")), [])
    return round(int(words[1]) / int(words[2]) * 1e6, 1) if len(words) == 3 else 0.0


def commit() -> str:
    """The checkout's commit."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")
