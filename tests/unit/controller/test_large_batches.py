"""A batch of samples of thousands of engines takes seconds: they are not the event loop's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace_operator.controller.clock import Clock
from headrace_operator.controller.loop import Controller
from headrace_operator.controller.metrics import OperatorMetrics
from headrace_operator.controller.takeover import remembered
from headrace_operator.decision.memory import Memory
from headrace_operator.loader.config_file import ConfigFile
from headrace_operator.loader.scrape import Scraper
from headrace_operator.loader.source import ScrapeSettings, TargetSample
from headrace_operator.publisher.standalone import StandalonePublisher
from headrace_operator.publisher.state import StateIdentity
from headrace_operator.store.resources import Resources
from support.engine_manifests import engine, policy

GOOD = Resources(engines=(engine("a"), engine("b")), policies=(policy(),), complete=True)


class Store:
    def look(self, *, thorough: bool) -> Resources:
        return GOOD


class Batch(list[TargetSample]):
    """Samples that can be gone through only while the event loop goes on: on the loop itself, never."""

    def __init__(self, samples: Sequence[TargetSample]) -> None:
        super().__init__(samples)
        self._loop = asyncio.get_running_loop()
        self.passes = 0

    def __iter__(self) -> Iterator[TargetSample]:
        turned = threading.Event()
        self._loop.call_soon_threadsafe(turned.set)
        assert turned.wait(10), "the samples are taken on the event loop, which stands still for so long"
        self.passes += 1
        return super().__iter__()


class Source(Scraper):
    """Reads nothing; gives a batch."""

    def __init__(self) -> None:
        super().__init__(ScrapeSettings(), follow=False)
        self.batches: list[Batch] = []

    async def read(self) -> Sequence[TargetSample]:
        target = self.targets[0]
        self.batches.append(Batch([TargetSample(target, 1.0, "Read", {"running": 1.0})]))
        return self.batches[-1]

    async def read_once(self) -> Sequence[TargetSample]:
        return await self.read()


async def test_samples_are_taken_beside_the_event_loop(tmp_path: Path) -> None:
    """Seen with 5,000 engines: 1.5 to 3.5 s in which no probe was answered, no page read and no heartbeat sent."""
    source, metrics = Source(), OperatorMetrics()
    publisher = StandalonePublisher(tmp_path / "state", StateIdentity(uid="u", term=1))
    impatient = tmp_path / "impatient.yaml"
    impatient.write_text("scrape: {interval: 100ms, timeout: 100ms}\n")
    config = ConfigFile(impatient)
    controller = Controller(Store(), source, publisher, config, metrics, Clock(), remembered(Memory()))
    assert await controller.once()
    stop = asyncio.Event()
    running = asyncio.create_task(controller.run(stop))
    async with asyncio.timeout(60):
        while controller.rounds < 2:
            controller.wake()
            await asyncio.sleep(0.01)
    stop.set()
    await running
    await source.close()
    assert metrics.registry.get_sample_value("headrace_operator_ticks_total", {"outcome": "failed"}) in (None, 0.0)
    assert len(source.batches) >= 4  # once, its round, and both rounds of the run
    assert all(batch.passes > 0 for batch in source.batches)
