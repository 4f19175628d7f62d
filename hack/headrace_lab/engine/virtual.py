"""Runs the step loop in virtual time: latency curves against utilisation, and closed loops as benchmarks run them.

Off every path: it derives ``../data/profiles.json`` (``python -m headrace_lab.engine.virtual [--write]``) and checks
the emergent latencies against the measured rows. Seeded, so that the same call gives the same numbers anywhere.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from headrace_lab.engine.contract import EngineConfig, Progress, Request
from headrace_lab.engine.fit import QUEUED_TTFT_MS, Row, committed_rows
from headrace_lab.engine.hardware import HARDWARE, LONG_PROMPTS, REFERENCE, Hardware, ProfilePoint, ReferenceMix
from headrace_lab.engine.steploop import StepLoop

UTILIZATION_PERCENT: Final = (0, 20, 40, 50, 60, 70, 75, 80, 85, 90, 94, 97, 100)
WARM_UP: Final = 60.0  # seconds of arrivals that are not counted; ten residence times
WINDOW: Final = 600.0  # seconds of arrivals that are; at 100 % the queue grows with it, so the last point is its mean
SEEDS: Final = (1, 2, 3)


@dataclass
class Means:
    """Sums over requests and tokens; means in seconds."""

    requests: int = 0
    ttft_sum: float = 0.0
    gaps: int = 0
    gap_sum: float = 0.0

    def add(self, progress: Progress) -> None:
        """Count one token."""
        if progress.generated == 1:
            self.requests += 1
            self.ttft_sum += progress.gap
        else:
            self.gaps += 1
            self.gap_sum += progress.gap

    @property
    def ttft(self) -> float:
        """Mean time to first token."""
        return self.ttft_sum / self.requests

    @property
    def tbot(self) -> float:
        """Mean time between output tokens."""
        return self.gap_sum / self.gaps


def open_loop(config: EngineConfig, mix: ReferenceMix, rate: float, seed: int, window: float = WINDOW) -> Means:
    """Poisson arrivals of ``mix`` at ``rate`` requests/s; means over the requests that arrive after the warm-up."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    core = StepLoop(config)
    means = Means()
    first_counted = 0
    arrival = rng.expovariate(rate)
    number = 0
    while True:
        event = core.next_event_time()
        if event is not None and event <= arrival:
            for progress in core.advance(event):
                if progress.id >= first_counted and first_counted:
                    means.add(progress)
        elif arrival < WARM_UP + window:
            number += 1
            if arrival >= WARM_UP and not first_counted:
                first_counted = number
            core.submit(Request(number, mix.input_tokens, mix.output_tokens), arrival)
            arrival += rng.expovariate(rate)
        elif event is None:
            return means
        else:
            arrival = float("inf")


def closed_loop(config: EngineConfig, length: Callable[[], tuple[int, int]], clients: int, requests: int) -> Means:
    """``clients`` that start at once and each send the next request when the last one ended; all are counted."""
    core = StepLoop(config)
    means = Means()
    for number in range(1, clients + 1):
        core.submit(Request(number, *length()), 0.0)
    sent = clients
    while (event := core.next_event_time()) is not None:
        for progress in core.advance(event):
            means.add(progress)
            if progress.finished and sent < requests:
                sent += 1
                core.submit(Request(sent, *length()), event)
    return means


def derive_point(
    hardware: Hardware, mix: ReferenceMix, utilization_percent: int, seeds: tuple[int, ...] = SEEDS
) -> ProfilePoint:
    """One point of the profile at ``mix``: mean over seeds; utilisation is rate x work, 0 is one request alone."""
    config = hardware.config()
    if utilization_percent == 0:
        runs = [closed_loop(config, lambda: (mix.input_tokens, mix.output_tokens), 1, 1)]
    else:
        rate = utilization_percent / 100 / hardware.work(mix)
        runs = [open_loop(config, mix, rate, seed) for seed in seeds]
    return ProfilePoint(
        utilization_percent,
        ttft_ms=round(1e3 * sum(run.ttft for run in runs) / len(runs), 3),
        tbot_ms=round(1e3 * sum(run.tbot for run in runs) / len(runs), 3),
    )


def emergent(row: Row) -> Means:
    """What the step loop does in the closed loop of a measured row.

    Ten requests a client, all counted, the burst at the start too: only so do the measured times to first token add up.
    Lengths vary by 20 % around the row's, as benchmarks draw them: with equal ones all clients would move in step.
    """
    rng = random.Random(row.id)  # noqa: S311 - a simulation

    def length() -> tuple[int, int]:
        return round(row.isl * rng.uniform(0.8, 1.2)), round(row.osl * rng.uniform(0.8, 1.2))

    return closed_loop(HARDWARE[row.name].config(), length, row.concurrency, 10 * row.concurrency)


def compare() -> None:
    """Print measured against emergent TTFT and TBOT, a line a row; ms."""
    for row in committed_rows():
        means = emergent(row)
        ttft, tbot = means.ttft * 1e3, means.tbot * 1e3
        queued = "  (full KV cache)" if row.ttft_ms >= QUEUED_TTFT_MS else ""
        sys.stdout.write(
            f"{row.name} {row.isl}/{row.osl} n={row.concurrency}: "
            f"ttft {row.ttft_ms:.0f} -> {ttft:.0f} ({ttft / row.ttft_ms - 1:+.0%}), "
            f"tbot {row.tpot_ms:.2f} -> {tbot:.2f} ({tbot / row.tpot_ms - 1:+.0%}){queued}\n"
        )


def main() -> int:
    """Derive all profiles, or compare with the measured rows."""
    parser = argparse.ArgumentParser(prog="python -m headrace_lab.engine.virtual", description="derive latency curves")
    parser.add_argument("--compare", action="store_true", help="print measured against emergent latencies instead")
    parser.add_argument("--write", action="store_true", help="write profiles.json")
    arguments = parser.parse_args()
    if arguments.compare:
        compare()
        return 0
    curves: dict[str, dict[str, list[ProfilePoint]]] = {}
    for mix in (REFERENCE, LONG_PROMPTS):
        curves[str(mix)] = {}
        for name, hardware in HARDWARE.items():
            points = [derive_point(hardware, mix, percent) for percent in UTILIZATION_PERCENT]
            curves[str(mix)][name] = points
            sys.stdout.write(f"{mix} {name}: {msgspec.json.encode(points).decode()}\n")
            sys.stdout.flush()
    if arguments.write:
        path = Path(__file__).parent.parent / "data" / "profiles.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(curves), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
