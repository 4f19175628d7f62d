"""All places where signals are read, as one: own pages by scraping, and each metric source of the configuration.

On the engine-signal path. Each target says where it is read; one place that hangs delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from headrace_operator.loader.prometheus import PrometheusSource
from headrace_operator.loader.scrape import Scraper
from headrace_operator.loader.source import PageTarget, ScrapeSettings, TargetSample


class Sources:
    """Implements SignalSource; create and use it inside one event loop."""

    def __init__(
        self, settings: ScrapeSettings, *, clock: Callable[[], float] = time.monotonic, follow: bool = True
    ) -> None:
        """clock: steady seconds that samples are stamped with. follow: read on and on, not only when asked to."""
        self.on_change: Callable[[], None] = lambda: None
        self._clock, self._follows = clock, follow
        self._scraper = Scraper(settings, clock=clock, follow=follow)
        self._scraper.on_change = self._changed
        self._prometheus: dict[str, PrometheusSource] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._targets: tuple[PageTarget, ...] = ()
        self.configure(settings)

    @property
    def targets(self) -> tuple[PageTarget, ...]:
        """What is read now."""
        return self._targets

    def configure(self, settings: ScrapeSettings) -> None:
        """New settings; a metric source that is described differently is asked anew, the others go on."""
        self._scraper.configure(settings)
        wanted = {source.name: source for source in settings.sources}
        for name, source in list(self._prometheus.items()):
            if wanted.get(name) != source.source:
                self._end(self._prometheus.pop(name))
        for name, described in wanted.items():
            if name not in self._prometheus:
                made = PrometheusSource(described, clock=self._clock, follow=self._follows)
                made.on_change = self._changed
                self._prometheus[name] = made
        self.retarget(self._targets)

    def retarget(self, targets: Sequence[PageTarget]) -> None:
        """From now on read these and no others."""
        self._targets = tuple(targets)
        self._scraper.retarget([target for target in targets if not target.source])
        for name, source in self._prometheus.items():
            source.retarget([target for target in targets if target.source == name])

    async def read(self) -> Sequence[TargetSample]:
        """All attempts since the last call, by place; does not wait for new ones."""
        return [sample for place in self._places() for sample in await place.read()]

    async def read_once(self) -> Sequence[TargetSample]:
        """One attempt at every target, waited for, in bounded time."""
        found = await asyncio.gather(*(place.read_once() for place in self._places()))
        return [sample for samples in found for sample in samples]

    async def close(self) -> None:
        """Stop reading; frees connections."""
        await asyncio.gather(*(place.close() for place in self._places()), *self._ending)

    def _places(self) -> list[Scraper | PrometheusSource]:
        return [self._scraper, *self._prometheus.values()]

    def _changed(self) -> None:
        self.on_change()

    def _end(self, source: PrometheusSource) -> None:
        task = asyncio.create_task(source.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
