"""``headrace run`` in a cluster: follows its resources at once, runs for the Lease, and decides while it holds it.

Several of these run side by side; those without the Lease watch all the same, so that a takeover is quick. One that
loses the Lease ends, with exit code 3, and its pod begins again as a standby: no process leads twice, and what an old
leader still had in mind is gone with it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace_api.commands import EXIT_DONE, EnvironmentFailed
from headrace_api.units import seconds
from headrace_operator.cli.cluster_access import namespace_of
from headrace_operator.cli.process import address_of, end_on_signals
from headrace_operator.controller.clock import Clock
from headrace_operator.controller.leader import Leader, Timing, steady_seconds
from headrace_operator.controller.loop import Controller
from headrace_operator.controller.metrics import OperatorMetrics
from headrace_operator.controller.own_namespaces import OwnNamespaces
from headrace_operator.controller.serve import served
from headrace_operator.controller.takeover import taken_over
from headrace_operator.controller.waits import first_of
from headrace_operator.handlers.following import Follower
from headrace_operator.kube.client import TIMEOUT, KubeClient, KubeFault, NotLeading, connect
from headrace_operator.kube.seen import SeenStatuses
from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_file import ConfigFile
from headrace_operator.loader.loader import scrape_settings
from headrace_operator.loader.sources import Sources
from headrace_operator.publisher.cluster import ClusterPublisher, TermBehind, cluster_publisher
from headrace_operator.publisher.cluster.claims import Claims
from headrace_operator.store.cluster import ClusterStore, ServicePort

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 300.0  # without any sign of life of the watches the process is stuck, or cut off
ELECTION_SECONDS: Final = 60.0  # without a step of the election its thread is stuck
AGAIN_SECONDS: Final = 2.0  # after the API server did not answer
LOOK_SECONDS: Final = 0.2


def run_cluster(arguments: argparse.Namespace) -> int:
    """Run until a signal ends it, or the Lease is lost.

    Raises:
        EnvironmentFailed: there is no cluster, or the Lease was lost.
        InputError: the configuration is wrong.
    """
    # It logs each attempt of each call and each event of each object; what that comes to is said by the follower.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    return asyncio.run(_Operator(arguments).run())


class _Operator:
    """One process. The clients differ in what guards their writes, and in how long they wait."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._config_file = ConfigFile(arguments.config)
        config = self._config_file.look().config
        timing = _timing(config)
        self._namespace = os.environ.get("POD_NAMESPACE") or namespace_of(arguments)
        pod = os.environ.get("POD_NAME") or socket.gethostname()
        self._leader = Leader(
            self._connect(timeout=timing.timeout),
            self._namespace,
            f"{pod}_{secrets.token_hex(4)}",  # a container that begins again in its pod is another candidate
            timing,
            on_change=lambda leading: self._soon(self._led, leading),
        )
        self._client = self._connect(may_write=self._leader.valid)
        self._claims = Claims(
            self._client,
            self._namespace,
            self._leader.identity,
            watched=config.watch_namespaces,
            steady=steady_seconds,
            wall=Clock().now,
            on_freed=lambda: self._soon(self._anew.set),
        )
        self._store, self._seen = ClusterStore(steady_seconds), SeenStatuses()
        self._follower = Follower(
            self._connect(may_write=lambda: False),
            self._store,
            lambda: self._soon(self._wake),
            steady_seconds,
            config.watch_namespaces,
            _named(config),
            self._seen,
        )
        self._metrics = OperatorMetrics()
        self._watched = config.watch_namespaces
        self._controller: Controller | None = None
        self._publisher: ClusterPublisher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop, self._leads, self._lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._anew = asyncio.Event()

    def _connect(
        self, *, may_write: Callable[[], bool] = lambda: True, timeout: tuple[float, float] = TIMEOUT
    ) -> KubeClient:
        return connect(
            "the API server",
            kubeconfig=self._arguments.kubeconfig,
            context=self._arguments.context,
            may_write=may_write,
            timeout=timeout,
        )

    def _soon(self, deed: Callable[..., None], *arguments: object) -> None:
        """Do it in the event loop; called from other threads, also while that ends."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(deed, *arguments)

    def _led(self, leading: bool) -> None:
        (self._leads if leading else self._lost).set()

    def _wake(self) -> None:
        if self._controller is not None:
            self._controller.wake()

    async def run(self) -> int:
        """The whole life of the process; gives its exit code."""
        self._loop = asyncio.get_running_loop()
        end_on_signals(self._stop)
        async with contextlib.AsyncExitStack() as stack:
            if self._arguments.metrics is not None:
                address = address_of(self._arguments.metrics) or ("127.0.0.1", 0)
                serving = served(address, self._metrics, self._alive, self._ready, self._show)
                log.info("headrace run: metrics on %s", await stack.enter_async_context(serving))
            # What ends last stands first: the Lease is given back when nothing is written any more.
            stack.push_async_callback(asyncio.to_thread, self._follower.stop)
            stack.push_async_callback(asyncio.to_thread, self._leader.stop)
            log.info("headrace run: %s in namespace %s", self._leader.identity, self._namespace)
            self._follower.start()
            await self._until_listed()
            if not self._stop.is_set():
                log.info("the cluster's resources are known; running for the Lease")
                self._leader.start()
                await first_of(None, self._stop, self._leads)
            while self._leads.is_set() and not self._stop.is_set() and not self._lost.is_set():
                self._anew.clear()
                if not await self._lead():
                    break
        if self._lost.is_set():
            raise EnvironmentFailed("the Lease was lost: another operator leads; this process ends, to begin anew")
        return EXIT_DONE

    async def _until_listed(self) -> None:
        """Wait until everything is known; until then nobody may lead: what is missing would look deleted."""
        told: tuple[str, ...] = ()
        since = steady_seconds()
        while not self._store.ready and not self._stop.is_set():
            missing = self._store.missing
            if missing != told and steady_seconds() - since > AGAIN_SECONDS:
                told = missing
                log.info("not known yet: %s", ", ".join(missing))
            await asyncio.sleep(LOOK_SECONDS)

    async def _lead(self) -> bool:
        """Decide and publish until a signal comes or the Lease is lost; gives whether to begin anew.

        That is so when other namespaces are to be watched, or are free that another installation served: what stands
        there is to be read, and its tables may carry a later term.
        """
        publisher = await self._made_publisher()
        if publisher is None:
            return False
        self._publisher = publisher
        config = self._config_file.look().config
        clock = Clock()
        source = Sources(scrape_settings(config), clock=clock.steady)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, publisher.close)
            stack.push_async_callback(source.close)
            restored = taken_over(publisher.tables.tables(), publisher.engine_statuses, publisher.retained)
            store = OwnNamespaces(self._store, self._claims)
            self._controller = Controller(
                store, source, publisher, self._config_file, self._metrics, clock, restored, self._configured
            )
            source.on_change = self._controller.wake
            ends, over = asyncio.Event(), asyncio.Event()
            running = asyncio.create_task(self._controller.run(ends))
            running.add_done_callback(lambda _: over.set())
            await first_of(None, self._stop, self._lost, self._anew, over)
            ends.set()
            await running
        return self._anew.is_set()

    async def _made_publisher(self) -> ClusterPublisher | None:
        """The publisher of this term, once the API server gives what stands; None: it is over before that."""
        while not self._stop.is_set() and not self._lost.is_set():
            config = self._config_file.look().config
            self._watched = config.watch_namespaces
            self._claims.watch(self._watched)
            try:
                return await asyncio.to_thread(
                    cluster_publisher,
                    self._client,
                    self._leader.term,
                    namespace=self._namespace,
                    holder=self._leader.identity,
                    watched=self._watched,
                    clusters=_clusters(config),
                    state=self._arguments.state,
                    claims=self._claims,
                    seen=self._seen,
                )
            except TermBehind as behind:
                if self._publisher is None or behind.standing > self._leader.term:
                    log.warning("tables of term %d stand: the Lease was made anew, or restored", behind.standing)
                await asyncio.to_thread(self._leader.raise_term, behind.standing + 1)
            except KubeFault as fault:
                log.warning("what stands can't be read yet: %s", fault.message)
            except NotLeading:
                pass
            await first_of(AGAIN_SECONDS, self._stop, self._lost)
        return None

    def _configured(self, config: OperatorConfig) -> None:
        """Follow what the configuration names; called from the loop at its start and after each change."""
        self._follower.follow(config.watch_namespaces, _named(config))
        if config.watch_namespaces != self._watched:
            self._soon(self._anew.set)
        elif self._publisher is not None:
            self._publisher.retarget(_clusters(config))

    def _alive(self) -> tuple[bool, str]:
        """Whether the process does what it should: a standby watches and stands for election, a leader decides too."""
        watch = self._store.age
        election = steady_seconds() - self._leader.stepped_at
        said = [f"the watches were last seen alive {watch:.0f} s ago"]
        well = watch <= WATCH_SECONDS
        if self._controller is not None:
            said.append(f"the loop went round {self._controller.age():.1f} s ago")
            well = well and self._controller.age() <= self._controller.patience()
        if self._leader.started:
            said.append(f"the Lease was last looked at {election:.0f} s ago")
            well = well and election <= ELECTION_SECONDS
        return well, f"{'ok' if well else 'stuck'}: {', '.join(said)}"

    def _ready(self) -> tuple[bool, str]:
        """Whether it can lead, or does."""
        if not self._store.ready and self._controller is None:
            return False, f"not known yet: {', '.join(self._store.missing) or 'endpoints of Services'}"
        if self._leader.valid():
            rounds = self._controller.rounds if self._controller is not None else 0
            return rounds > 0, f"leading, term {self._leader.term}, {rounds} rounds"
        return not self._stop.is_set(), f"standby; {self._leader.holder or 'nobody'} leads"

    def _show(self) -> None:
        self._metrics.show_cluster(leading=self._leader.valid(), term=self._leader.term, watch_age=self._store.age)
        if self._controller is not None:
            self._metrics.loop_age.set(self._controller.age())


def _timing(config: OperatorConfig) -> Timing:
    election = config.leader_election
    return Timing(seconds(election.lease_duration), seconds(election.renew_deadline), seconds(election.retry_period))


def _named(config: OperatorConfig) -> tuple[ServicePort, ...]:
    services = [entry.service for entry in config.routers if entry.service is not None]
    return tuple(ServicePort(one.namespace, one.name, one.port) for one in services)


def _clusters(config: OperatorConfig) -> dict[str, Path]:
    return {cluster.name: Path(cluster.kubeconfig_file) for cluster in config.clusters}
