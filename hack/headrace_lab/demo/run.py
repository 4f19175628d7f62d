"""Runs the demo from the first process to the last word. The shell: it owns clock, processes and files.

Three things go on at once: the replay sends requests, the stage hands out the script's faults, the view reads what
was published and shows it. When the replay is over, everything is counted.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, Self

import aiohttp

from headrace_api.version import __version__
from headrace_lab.demo import stage
from headrace_lab.demo.changes import changes
from headrace_lab.demo.fleet import ENGINES, MODEL
from headrace_lab.demo.frame import Frame
from headrace_lab.demo.manifests import MAX_ATTEMPTS
from headrace_lab.demo.observe import Observer
from headrace_lab.demo.options import Options
from headrace_lab.demo.plant import Plant
from headrace_lab.demo.report import Evidence, Report, build_report
from headrace_lab.demo.script import Script, script
from headrace_lab.demo.stats import LiveStats
from headrace_lab.replay.client import Replay, ReplayTarget
from headrace_lab.replay.outcome import Outcome
from headrace_lab.workload import traces
from headrace_lab.workload.frontends import FRONTENDS
from headrace_lab.workload.requests import Request, WorkloadSpec, build

LOOK_EVERY = 0.25  # seconds between two looks at what was published
SHOWN_EVERY = 2  # looks
LEAD = 0.5  # seconds between "all is ready" and the first arrival


class Screen(Protocol):
    """Where a run is shown."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def say(self, text: str) -> None:
        """A line before or after the run."""

    def show(self, frame: Frame) -> None:
        """The running demo at an instant."""


async def run_demo(options: Options, screen: Screen) -> Report:
    """The whole demo.

    Raises:
        ValueError: an option is out of range.
        EnvironmentFailed: a process did not start.
    """
    story = script(options.duration)
    spec = WorkloadSpec(options.duration, options.rate, options.length_divisor, story.surges)
    requests = build(
        spec,
        traces.read_conversations(traces.packaged(traces.CONVERSATIONS_FILE)),
        traces.read_arrivals(traces.packaged(traces.ARRIVALS_FILE)),
    )
    trips = traces.read_round_trips(traces.packaged(traces.ROUND_TRIPS_FILE))
    async with AsyncExitStack() as stack:
        folder = await stack.enter_async_context(_WorkFolder(options.keep))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        plant = Plant(folder, session)
        stack.push_async_callback(plant.children.stop)
        introduce(screen, spec, requests, folder, options.keep is not None)
        await plant.start(spec, requests, trips)
        return await _Run(options, story, spec, requests, plant).play(screen)


def introduce(screen: Screen, spec: WorkloadSpec, requests: tuple[Request, ...], folder: Path, kept: bool) -> None:
    """Say what will run and how it differs from the real thing."""
    screen.say(
        f"{len(requests)} requests in {spec.duration:g} s: arrivals and answer lengths from Azure's 2023 chat trace,"
        f" conversations and prompts from Mooncake's, all lengths divided by {spec.length_divisor}.\n"
        "Engines are simulated from measured step times; every process, connection and byte is real.\n"
        "The round trips between regions are Azure's, added inside the engines (not to connects or health checks).\n"
        f"Manifests, tables, status and logs: {folder}{'' if kept else ' (gone at the end; --keep DIR keeps them)'}\n"
        f"starting {len(ENGINES)} engines, {len(FRONTENDS)} routers, 1 operator …"
    )


class _WorkFolder(AbstractAsyncContextManager[Path]):
    """The folder to keep, or a temporary one that goes with the demo."""

    def __init__(self, keep: Path | None) -> None:
        self._keep = keep
        self._temporary: TemporaryDirectory[str] | None = None

    async def __aenter__(self) -> Path:
        if self._keep is not None:
            return self._keep.resolve()
        self._temporary = TemporaryDirectory(prefix="headrace-demo-")
        return Path(self._temporary.name)

    async def __aexit__(self, *_: object) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


class _Run:
    """One run on a plant that stands."""

    def __init__(
        self, options: Options, story: Script, spec: WorkloadSpec, requests: tuple[Request, ...], plant: Plant
    ) -> None:
        self._options = options
        self._story = story
        self._plant = plant
        target = ReplayTarget(plant.routers, MODEL, spec.block_tokens, MAX_ATTEMPTS)
        self._replay = Replay(requests, target, self._ended, on_answer=self._answered)
        self._outcomes: list[Outcome] = []
        self._stats = LiveStats()
        self._board = stage.Board()
        self._queues: dict[str, tuple[int, int]] = {}
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time() + LEAD
        self._observer = Observer(plant.state, [f.name for f in FRONTENDS], time.time() + LEAD)

    @property
    def _now(self) -> float:
        return self._loop.time() - self._began

    def _ended(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._stats.add(self._now, outcome)

    def _answered(self, frontend: str, engine: str) -> None:
        self._stats.begin(self._now, frontend, engine)

    async def play(self, screen: Screen) -> Report:
        """Replay, faults and view together, then the count."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._observer.poll()
        play = stage.Stage(self._plant, self._observer, self._board, self._began)
        chaos: asyncio.Task[stage.Interruption] | None = None
        with screen:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._look(screen)), group.create_task(play.faults(self._story.faults))]
                if self._options.chaos == "operator":
                    chaos = group.create_task(play.kill_operator(self._options.duration))
                await self._replay.run(self._began)
                if chaos is not None:
                    await chaos
                for task in tasks:
                    task.cancel()
            self._observer.poll()
            screen.show(self._frame())
        return build_report(await self._evidence(started, chaos.result() if chaos else None))

    async def _evidence(self, started: str, interruption: stage.Interruption | None) -> Evidence:
        children = self._plant.children
        cpu = {child.name: child.cpu_seconds() for child in children}
        own = os.times()
        observer = self._observer
        return Evidence(
            headrace=__version__,
            started=started,
            script=self._story,
            requests_per_second=self._options.rate,
            length_divisor=self._options.length_divisor,
            outcomes=self._outcomes,
            publications=observer.publications,
            changes=changes(observer.history, observer.publications),
            events=observer.events,
            frontends=FRONTENDS,
            refused_retries=await self._plant.refused_retries(),
            max_attempts=MAX_ATTEMPTS,
            cpu_seconds={**cpu, "replay and view": own.user + own.system},
            ended_by_themselves=[child.name for child in children.ended_by_themselves()],
            chaos=None if interruption is None else stage.chaos_report(interruption, self._outcomes, observer),
        )

    async def _look(self, screen: Screen) -> None:
        looks = 0
        while True:
            self._observer.poll()
            if looks % SHOWN_EVERY == 0:
                self._queues = await self._plant.queues()
                screen.show(self._frame())
            looks += 1
            await asyncio.sleep(LOOK_EVERY)

    def _frame(self) -> Frame:
        now, observer = self._now, self._observer
        return Frame(
            now=now,
            script=self._story,
            revision=max((p.revision for p in observer.latest.values()), default=0),
            total=self._stats.live(now),
            in_flight=self._replay.in_flight,
            frontends={f.name: self._stats.live(now, f.name) for f in FRONTENDS},
            weights={name: publication.weights for name, publication in observer.latest.items()},
            utilization=self._stats.utilization(now, observer.latest.values()),
            queues=self._queues,
            engine_states=self._board.states,
            changes=changes(observer.history, observer.publications),
            events=observer.events,
            why=observer.status.get("why", ()),
            notes=self._board.notes,
        )
