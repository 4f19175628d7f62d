"""The level-triggered loop: load, snapshot, decide, publish; again on edits, on changes of liveness, and each tick.

On the routing-weight path. It holds no truth of its own: each round starts from what is there. A round that fails is
told once a kind, leaves the last tables as they are, and the next round goes on. Taking samples, solving and file I/O
run in threads, so that thousands of engines hold up neither the heartbeat nor the probes; the loader is touched by one
round at a time, which waits for its thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from headrace_api.table import RoutingTable
from headrace_api.units import seconds
from headrace_operator.controller.clock import Clock
from headrace_operator.controller.failing import Failing
from headrace_operator.controller.metrics import OperatorMetrics
from headrace_operator.controller.takeover import Restored, all_fresh, shedding_policies
from headrace_operator.controller.waits import first_of
from headrace_operator.decision.decide import Decision, decide
from headrace_operator.decision.warm import WarmModels
from headrace_operator.kube.client import KubeFault, NotLeading
from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_file import ConfigFile
from headrace_operator.loader.loader import Loader, scrape_settings
from headrace_operator.loader.source import SignalSource, TargetSample
from headrace_operator.publisher.engine_status import SignalView
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import table_places
from headrace_operator.publisher.publisher import Publisher
from headrace_operator.publisher.records import Record
from headrace_operator.snapshot.build import build_snapshot
from headrace_operator.snapshot.model import Snapshot
from headrace_operator.snapshot.signals import Signals
from headrace_operator.store.resources import Resources

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0  # of what is tried again and again beside rounds
MIN_GAP: Final = 0.1  # seconds between rounds, however often something wakes the loop
THOROUGH_SECONDS: Final = 30.0  # how often contents are compared although no file seems changed
FIRST_INTERVALS: Final = 5  # a restarted operator waits at most so long for readings before it moves anything


class Store(Protocol):
    """Where resources live."""

    def look(self, *, thorough: bool) -> Resources:
        """The resources now; the same object while nothing changed."""


class Controller:
    """One operator while it decides. ``run`` until stopped, or ``once``."""

    def __init__(
        self,
        store: Store,
        source: SignalSource,
        publisher: Publisher,
        config_file: ConfigFile,
        metrics: OperatorMetrics,
        clock: Clock,
        restored: Restored,
        configured: Callable[[OperatorConfig], None] = lambda _: None,
    ) -> None:
        """restored: what the last start, or leader, left. configured: told the configuration at first, and changed."""
        self._store = store
        self._source = source
        self._publisher = publisher
        self._config_file = config_file
        self._metrics = metrics
        self._clock = clock
        self._config: OperatorConfig = config_file.look().config
        self._configured = configured
        configured(self._config)
        self._loader = Loader(self._config)
        self._loader.restore(
            restored.punished,
            clock.steady(),
            trimmed=restored.trimmed,
            dead=restored.dead,
            ratios=restored.ratios,
            edges=restored.edges,
        )
        self._warm = WarmModels()
        self._memory = restored.memory
        self._resources: Resources | None = None
        self._woken = asyncio.Event()
        self._thorough_at = -float("inf")
        self._went_round = clock.steady()
        self._told_faults: frozenset[str] = frozenset()
        self._failing = Failing()
        self.rounds = 0

    def wake(self) -> None:
        """Go round soon."""
        self._woken.set()

    def age(self) -> float:
        """Seconds since the loop last went on: ended a round, whether or not it succeeded, or a part of a long one."""
        return self._clock.steady() - self._went_round

    def _moved_on(self) -> None:
        self._went_round = self._clock.steady()

    def patience(self) -> float:
        """Seconds after which the loop counts as stuck."""
        return max(60.0, 5 * seconds(self._config.tick))

    async def run(self, stop: asyncio.Event) -> None:
        """Go round until ``stop`` is set; then the last statuses are written."""
        beat = asyncio.create_task(self._beat(stop))
        try:
            await self._begin(stop)
            while not stop.is_set():
                self._woken.clear()
                await self._round()
                self.rounds += 1
                await first_of(seconds(self._config.tick), stop, self._woken)
                await first_of(MIN_GAP, stop)
        finally:
            beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beat
            # Whoever leads now writes them.
            with contextlib.suppress(NotLeading):
                await asyncio.to_thread(self._publisher.flush, self._clock.steady(), all_of_them=True)

    async def once(self) -> bool:
        """One load with one reading of every target, one decision; False when the round failed."""
        await asyncio.to_thread(self._publisher.stamp_term, {})
        await self._load()
        await asyncio.to_thread(self._loader.observe, await self._source.read_once())
        good = await self._round()
        await asyncio.to_thread(self._publisher.flush, self._clock.steady(), all_of_them=True)
        await asyncio.to_thread(self._publisher.beat, self._clock.steady(), self._clock.now())
        return good

    async def _begin(self, stop: asyncio.Event) -> None:
        """Put this start's term on the tables; where some stand, wait for readings before anything moves them."""
        for fault in self._publisher.faults:
            log.warning("%s; left alone", fault)
        stamped = await self._stamped(stop)
        self._moved_on()
        # What fails here fails in the first round too, which tells it.
        with contextlib.suppress(Exception):
            await self._wait_for_readings(stamped, stop)

    async def _wait_for_readings(self, stamped: int, stop: asyncio.Event) -> None:
        await self._load()
        if self._publisher.tables.tables() and self._source.targets:
            settings = scrape_settings(self._config)
            log.info("term %d on %d tables; waiting for readings", self._publisher.identity.term, stamped)
            bound = self._clock.steady() + FIRST_INTERVALS * settings.interval + settings.timeout
            while self._clock.steady() < bound and not stop.is_set() and not await self._all_read():
                await first_of(min(1.0, settings.interval), stop)

    async def _stamped(self, stop: asyncio.Event) -> int:
        """Put the term on the tables, tried until it comes off; gives on how many."""
        while not stop.is_set():
            try:
                return await asyncio.to_thread(self._publisher.stamp_term, {})
            except (NotLeading, KubeFault) as error:
                self._failing.tell_once(f"the term can't be put on the tables yet: {error}")
            await first_of(RETRY_SECONDS, stop)
        return 0

    async def _all_read(self) -> bool:
        """Whether everything that is to be read has been, so that a restart knows what the last start knew."""
        self._moved_on()
        samples = await self._source.read()
        signals, _, _ = await asyncio.to_thread(self._take, samples, self._publisher.tables.tables())
        return all_fresh(signals.states, {entry.frontend for entry in self._config.routers})

    async def _beat(self, stop: asyncio.Event) -> None:
        """Renew the heartbeat while the loop goes round: a stuck operator must not look alive."""
        while not stop.is_set():
            if self.age() < self.patience():
                with contextlib.suppress(NotLeading):
                    await asyncio.to_thread(self._publisher.beat, self._clock.steady(), self._clock.now())
            await first_of(RETRY_SECONDS, stop)

    async def _round(self) -> bool:
        """One round; a failure is told once a kind and leaves everything as it was."""
        try:
            with self._metrics.tick_seconds.time():
                await self._tick()
        except NotLeading as error:
            self._failing.held(error)
            self._metrics.ticks.labels("failed").inc()
            return False
        except Exception as error:  # noqa: BLE001  the next round goes on from what is there then
            trouble = self._failing.failed(error, self._clock.steady(), self.patience())
            if trouble:
                await self._show_trouble(trouble)
            self._metrics.ticks.labels("failed").inc()
            return False
        else:
            self._failing.succeeded()
            self._metrics.ticks.labels("done").inc()
            return True
        finally:
            self._moved_on()

    async def _show_trouble(self, trouble: str) -> None:
        """Say in the policies' statuses that nothing is decided any more, as far as that can be done."""
        known, at = self._resources or Resources(), self._clock.now()
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self._publisher.show_policies, known.policies, _refused(known), at, trouble=trouble)
            await asyncio.to_thread(self._publisher.flush, self._clock.steady())

    async def _load(self) -> Resources:
        """Configuration and resources as they are now; whoever reads signals follows."""
        looked = await asyncio.to_thread(self._config_file.look)
        thorough = self._clock.steady() - self._thorough_at >= THOROUGH_SECONDS
        resources = await asyncio.to_thread(self._store.look, thorough=thorough)
        if thorough:
            self._thorough_at = self._clock.steady()
        self._tell_faults((*looked.faults, *resources.faults))
        if looked.changed:
            self._config = looked.config
            self._source.configure(scrape_settings(self._config))
            await asyncio.to_thread(self._configured, self._config)
            log.info("the configuration changed")
        if looked.changed or resources is not self._resources:
            self._resources = resources
            found = await asyncio.to_thread(
                self._loader.configure, resources.engines, resources.policies, self._config, resources.services
            )
            self._source.retarget(found)
        return resources

    async def _tick(self) -> None:
        resources = await self._load()
        samples = await self._source.read()
        standing = self._publisher.tables.tables()
        signals, steady, wall = await asyncio.to_thread(self._take, samples, standing)
        with self._metrics.solve_seconds.time():
            snapshot, decision = await asyncio.to_thread(self._decide, resources, signals, standing, wall)
        self._moved_on()
        await asyncio.to_thread(self._publish, resources, snapshot, decision, standing)
        self._metrics.show_weights(self._publisher.tables.tables())
        self._metrics.show_ages(
            {name: steady - view.figures.at for name, view in self._loader.views.items() if view.figures.at is not None}
        )

    def _take(self, samples: Sequence[TargetSample], standing: Sequence[RoutingTable]) -> tuple[Signals, float, float]:
        """Samples into signals, with both clocks' time at which they hold."""
        self._metrics.count_reads(samples)
        self._loader.observe(samples, shedding_policies(standing))
        steady, wall = self._clock.steady(), self._clock.wall()
        return self._loader.signals(steady, wall), steady, wall

    def _decide(
        self, resources: Resources, signals: Signals, standing: Sequence[RoutingTable], wall: float
    ) -> tuple[Snapshot, Decision]:
        memory = self._memory
        snapshot = build_snapshot(
            resources.engines,
            resources.policies,
            signals,
            at=wall,
            previous=(*standing, *memory.shadow),
            savings=memory.savings,
            shedding=memory.shedding,
        )
        decision = decide(
            snapshot,
            memory,
            standing,
            uid=self._publisher.identity.uid,
            term=self._publisher.identity.term,
            revision=self._publisher.revision + 1,
            assess=self._warm.assess,
            statuses=self._publisher.policy_statuses,
            barred=self._publisher.tables.barred(table_places(resources.policies)),
        )
        return snapshot, decision

    def _publish(
        self, resources: Resources, snapshot: Snapshot, decision: Decision, before: Sequence[RoutingTable]
    ) -> None:
        publisher, at = self._publisher, self._clock.now()
        refused = _refused(resources)
        rejected = {(name.kind, name.id): metadata for name, metadata in resources.rejected.items()}
        written = publisher.publish(decision.tables, table_places(resources.policies))
        self._moved_on()
        lost = _policies_of(decision.tables) - _policies_of(written)
        partly = len(written) < len(decision.tables)
        # What did not come off is decided again at the next round, against what was published last.
        memory = decision.memory
        if partly and self._memory.published is not None:
            memory = msgspec.structs.replace(memory, published=self._memory.published)
        statuses = [(name, status) for name, status in decision.statuses if name not in lost]
        if written:
            record = self._record(snapshot, decision, before, written, at)
            publisher.record(msgspec.structs.replace(record, statuses=tuple(statuses)), self._config.records, memory)
            for table in written:
                self._metrics.published.labels(table.policy_namespace, table.policy).inc()
                log.info(
                    "revision %d: table of %s/%s for front-end %s",
                    table.identity.revision,
                    table.policy_namespace,
                    table.policy,
                    table.frontend,
                )
        elif memory.shadow != self._memory.shadow:
            publisher.remember(memory)
        # A policy whose manifest is refused, and was never in force here, is missing without being deleted.
        unread = {name.id for name in resources.refused if name.kind == "RoutingPolicy"}
        # One in a namespace that is not watched any more is not known to be deleted either.
        orphans = [
            orphan
            for orphan in decision.orphans
            if orphan[0] not in unread and resources.covers(orphan[0].partition("/")[0])
        ]
        for key in publisher.remove_orphans(orphans, certain=resources.complete):
            log.info("table of %s for front-end %s removed: the policy asks for it no more", *key)
        publisher.policy_statuses.update(statuses)
        self._memory = memory
        publisher.show_policies(resources.policies, refused, at, rejected)
        publisher.show_engines(
            resources.engines,
            {engine.id: engine for engine in snapshot.engines},
            self._signal_views(),
            refused,
            at,
            rejected,
        )
        if resources.complete:
            publisher.forget_others(resources.all(), rejected)
        events = [event for event in decision.events if event.id not in lost or event.kind != "RoutingPolicy"]
        publisher.tell([EventNote(e.kind, e.id, e.type, e.reason, e.message) for e in events], refused, at)
        publisher.flush(self._clock.steady())

    def _record(
        self,
        snapshot: Snapshot,
        decision: Decision,
        before: Sequence[RoutingTable],
        written: Sequence[RoutingTable],
        at: str,
    ) -> Record:
        return Record(
            revision=self._publisher.revision,
            term=self._publisher.identity.term,
            uid=self._publisher.identity.uid,
            at=at,
            snapshot=snapshot,
            memory=self._memory,
            before=tuple(before),
            written=tuple(written),
            history=decision.history,
        )

    def _signal_views(self) -> dict[str, SignalView]:
        since = self._loader.engine_since
        return {
            name: SignalView(view.state, since(name), view.problems, view.counted, view.misnamed, view.read)
            for name, view in self._loader.views.items()
        }

    def _tell_faults(self, faults: Sequence[str]) -> None:
        """Log what is newly wrong, and that it is right again."""
        now = frozenset(faults)
        for fault in faults:
            if fault not in self._told_faults:
                log.warning("%s", fault)
        if self._told_faults and not now:
            log.info("all manifests are right again")
        self._told_faults = now
        self._metrics.faults.set(len(now))


def _refused(resources: Resources) -> dict[tuple[str, str], str]:
    return {(name.kind, name.id): message for name, message in resources.refused.items()}


def _policies_of(tables: Iterable[RoutingTable]) -> set[str]:
    return {f"{table.policy_namespace}/{table.policy}" for table in tables}
