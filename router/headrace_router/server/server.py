"""Start, serve, end: puts the parts together and takes them down in an order that loses no request.

Beside the request path. At SIGTERM readiness falls at once while new connections are still served for the drain delay
(endpoints are removed late, SHU-01); then the listener closes, streams have a grace, and what is left gets an error
event (SHU-02). Helper tasks end last. Must not exit before the last bytes were handed to the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from headrace_api.commands import EnvironmentFailed
from headrace_router import pauses
from headrace_router.background import for_ever
from headrace_router.core.view import TableView
from headrace_router.endpoints.prober import probe_for_ever
from headrace_router.endpoints.round_trips import RoundTrips, connecting
from headrace_router.endpoints.services import Services
from headrace_router.listener.inherited import Inherited, left
from headrace_router.listener.limits import Limits
from headrace_router.listener.listener import Listener
from headrace_router.listener.sockets import keep_alive, listening, of_both_families
from headrace_router.listener.tls import TlsServer
from headrace_router.outbox import Outbox
from headrace_router.proxy.memory import BodyMemory
from headrace_router.proxy.proxy import Proxy
from headrace_router.proxy.refusals import SHUTTING_DOWN
from headrace_router.proxy.waiting import Waiting
from headrace_router.server.access import Access
from headrace_router.server.access_files import AccessFiles
from headrace_router.server.admin import Admin
from headrace_router.server.one_of import ALL, OneOf
from headrace_router.server.pod import surroundings
from headrace_router.tables.tables import Tables
from headrace_router.tables.tables_from import TablesFrom
from headrace_router.telemetry.access_log import STDOUT, AccessLog
from headrace_router.telemetry.accounting import Ledger
from headrace_router.telemetry.calm_log import Calm
from headrace_router.telemetry.form import IN_WORDS
from headrace_router.telemetry.metrics import Metrics
from headrace_router.telemetry.trace_settings import TraceSettings, start_tracing
from headrace_router.upstream.pool import Pool
from headrace_router.upstream.resolve import Resolver

log = logging.getLogger("headrace.router")

BACKLOG: Final = 2048
ADMIN_BACKLOG: Final = 128
# Seconds for error events to leave after the grace.
LAST_WORDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says. Seconds; port 0 is any free port."""

    tables: TablesFrom
    frontend: str | None = None
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    admin: tuple[str, int] = ("127.0.0.1", 9090)
    drain_delay: float = 5.0
    grace: float = 20.0
    access_log: bool = False
    access: AccessFiles = field(default_factory=AccessFiles)
    metrics: tuple[str, int] | None = None
    limits: Limits = field(default_factory=Limits)
    traces: TraceSettings | None = None

    @property
    def scheme(self) -> str:
        """http, or https with a certificate for clients."""
        return "http" if self.access.tls is None else "https"


class Router:
    """A running router. To be made inside a running loop. one_of: of several processes that are one router."""

    def __init__(self, settings: Settings, one_of: OneOf = ALL) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self._one_of = one_of
        self.metrics = Metrics()
        self.ledger = Ledger(self.metrics)
        # Spread, not secrecy: which engine a keyless request meets.
        chance = random.Random()  # noqa: S311
        self.selector = one_of.selector(chance.random, time.time() - loop.time())
        self.access = Access(
            settings.access,
            handshake=lambda how: self.metrics.tls_handshakes[(how,)].inc(),
            rejected=lambda what: self.metrics.credential_rejects[(what,)].inc(),
            usable=self._set_ready,
            renewed=self._renew,
        )
        resolver = Resolver()
        # Places of its own: engines' names that hang hold up no Service.
        self.outbox = Outbox(loop)
        self.upstream = Pool(Resolver(), self.access.engines.context, self.outbox)
        self.upstream.on_connect = self.metrics.connect.observe
        self.waiting = Waiting(self.selector, loop, self.metrics.queued.set, one_of.look_every)
        self.access_log = AccessLog(STDOUT, self.metrics.log_dropped, one_of.turn) if settings.access_log else None
        self.tracing = start_tracing(settings.traces, self.metrics.spans) if settings.traces is not None else None
        self.proxy = Proxy(
            self.selector,
            self.upstream,
            self.waiting,
            self.ledger,
            BodyMemory(settings.limits.body_memory),
            access_log=self.access_log,
            traces=self.tracing.traces if self.tracing is not None else None,
            keys=self.access.keys,
            credentials=self.access.engines,
        )
        self.around = surroundings(settings.tables, chance.random)
        self.services = Services(
            self.selector, self.around.api, chance=chance.random, changed=self._endpoints_changed, resolver=resolver
        )
        self.upstream.on_unreached = self.services.unreached
        self.round_trips = RoundTrips(self.selector, connecting(resolver), clock=loop.time, chance=chance.random)
        self.tables = Tables(
            self.around.sources,
            settings.frontend,
            current=lambda: self.selector.view,
            endpoints=self.services.known,
            install=self.install,
            rejected=lambda label: self.metrics.table_rejects[(label,)].inc(),
            silence=self.around.heartbeat.age,
        )
        for source in self.around.sources:
            self.metrics.table_rejects[(source.label,)].inc(0)
        self.admin = Admin(
            self.selector,
            self.metrics,
            self.tables,
            self.around.heartbeat,
            self.services,
            self.round_trips,
            serving=lambda: self._server is not None,
            draining=lambda: self.proxy.draining,
            access=self.access.detail,
        )
        self._listener = Listener(self.proxy, settings.limits, outbox=self.outbox)
        self._server: asyncio.Server | TlsServer | Inherited | None = None
        self._beside: list[web.AppRunner] = []
        self._warned: set[str] = set()
        self._helpers: list[asyncio.Task[None]] = []
        self.address = ""
        self.admin_address = ""
        self.metrics_address = ""

    def install(self, view: TableView) -> None:
        """Swap the view: one assignment, then what follows from it."""
        # Clocks are set while routers run, and all of a front-end's are to draw shed lots in the same windows.
        self.selector.wall_offset = time.time() - asyncio.get_running_loop().time()
        self.selector.install(view)
        self.services.follow(view)
        self.access.follow_engines(view)
        self.ledger.prepare(view)
        self.upstream.retain(view.engines.keys())
        self.waiting.wake()
        warnings = {f"tables conflict: {text}" for text in view.conflicts}
        for warning in sorted(warnings - self._warned):
            log.warning(warning)
        self._warned = warnings

    async def start(self) -> None:
        """Listen on both addresses and follow the tables.

        Raises:
            EnvironmentFailed: an address can't be listened on.
        """
        loop = asyncio.get_running_loop()
        await self.access.start()
        await self.tables.check()
        at = self.settings.admin
        inherits = bool(self._one_of.sockets)
        try:
            if not inherits:
                self.admin_address = await self._serve_beside(self.admin.application(), at)
            if self.settings.metrics is not None and not inherits:
                at = self.settings.metrics
                self.metrics_address = await self._serve_beside(self.admin.metrics_only(), at)
            at = self.settings.listen
            self._server = await self._listen(*at)
        except OSError as error:
            for runner in self._beside:
                await runner.cleanup()
            await self.upstream.close()
            raise cant_listen(at, error) from error
        keep_alive(self._server.sockets)
        self.address = url_of(self._server.sockets[0].getsockname(), self.settings.scheme)
        helpers = {
            "tables": self.tables.follow,
            "prober": lambda: probe_for_ever(
                self.selector, self.upstream, self.waiting.wake, self.access.engines.lacking
            ),
            "names": self.services.run,
            "round trips": self.round_trips.run,
            "keys and certificates": self.access.follow,
            "garbage": lambda: pauses.collect_when_idle(lambda: not self.proxy.running, loop.time),
        }
        for number, lease in enumerate(self.around.leases):
            helpers[f"heartbeat {number}"] = lease.follow
        self._helpers = [asyncio.create_task(for_ever(name, run), name=name) for name, run in helpers.items()]

    async def stop(self, hurry: asyncio.Event | None = None, *, drain_delay: float | None = None) -> None:
        """End: lame duck, listener closed, grace, error events, everything closed. ``hurry`` cuts the waiting short."""
        hurry = hurry or asyncio.Event()
        self.proxy.draining = True
        self._listener.drain()
        await _until(hurry.wait(), self.settings.drain_delay if drain_delay is None else drain_delay)
        if self._server is not None:
            self._server.close()
        if isinstance(self._server, Inherited):
            await self._server.made()
        self._listener.close_idle()
        await self._graced(hurry)
        self._listener.end_all(SHUTTING_DOWN)
        self.proxy.end_all()
        await _until(self.proxy.ended(), LAST_WORDS)
        for task in self._helpers:
            task.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        await self.services.close()
        if self.around.api is not None:
            await self.around.api.close()
        await self._quiet()
        if self.access.tls is not None:
            await self.access.tls.handshakes.close()
        await self._listener.shutdown(LAST_WORDS)
        await self.upstream.close()
        if self.access_log is not None:
            await self.access_log.close()
        if self.tracing is not None:
            await self.tracing.close()
        for runner in self._beside:
            await runner.cleanup()

    async def _listen(self, host: str, port: int) -> asyncio.Server | TlsServer | Inherited:
        loop = asyncio.get_running_loop()
        sockets = self._one_of.sockets
        if self.access.tls is not None:
            handshakes = self.access.tls.handshakes
            at = sockets or await listening(host, port, BACKLOG)
            return TlsServer(
                self.access.tls,
                self._listener,
                at,
                lambda since, able: left(
                    self._one_of.leaves, self._listener, len(handshakes), handshakes.protocols(), since, able=able
                ),
            )
        if sockets:
            return Inherited(self._listener, sockets, self._one_of.leaves)
        if (both := of_both_families(host, port, BACKLOG)) is not None:
            return await loop.create_server(self._listener, sock=both, backlog=BACKLOG)
        return await loop.create_server(self._listener, host, port, backlog=BACKLOG)

    async def _serve_beside(self, application: web.Application, at: tuple[str, int]) -> str:
        """Serve pages that are not for clients; returns their address."""
        runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await runner.setup()
        self._beside.append(runner)
        await _site(runner, *at).start()
        return url_of(runner.addresses[0])

    def _endpoints_changed(self) -> None:
        self.access.endpoints_changed()
        self.waiting.wake()

    def _renew(self, engine: str) -> None:
        self.upstream.retire(engine)

    def _set_ready(self, engine: str, ready: bool) -> None:
        """An engine that can't be used isn't picked while another is there; one that can be is as good as a new one."""
        known = self.selector.view.engines.get(engine)
        for endpoint in known.endpoints if known is not None else ():
            self.selector.set_ready(engine, endpoint.url, ready)
        if ready:
            self.waiting.wake()

    async def _graced(self, hurry: asyncio.Event) -> None:
        """Until no request runs and none can come any more, at most the grace."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.grace
        hurried = asyncio.create_task(hurry.wait())
        while not hurry.is_set() and (left := end - loop.time()) > 0:
            ended = asyncio.create_task(self._listener.ended())
            await asyncio.wait({ended, hurried}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            if await self._quiet():
                break
        hurried.cancel()

    async def _quiet(self) -> bool:
        """Whether no request runs after a moment for last bytes, and for connections that were just made."""
        for _ in range(int(LAST_WORDS / 0.01)):
            if self._listener.busy or not (self._listener.connections or self.access.connecting()):
                break
            await asyncio.sleep(0.01)
        return not self._listener.busy and not self.access.connecting()


async def serve(settings: Settings, say: Callable[[str], None]) -> int:
    """Run a router until SIGTERM or Ctrl-C; returns the exit code."""
    loop = asyncio.get_running_loop()
    stopping, hurry = asyncio.Event(), asyncio.Event()
    gentle = True

    def interrupt() -> None:
        nonlocal gentle
        if stopping.is_set():
            hurry.set()
        gentle = False
        stopping.set()

    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    raise_file_limit()
    pauses.settle()
    router = Router(settings)
    await router.start()
    apart = f", metrics {router.metrics_address}" if router.metrics_address else ""
    say(f"headrace router: serving on {router.address}, admin {router.admin_address}{apart}, {IN_WORDS}")
    await stopping.wait()
    await router.stop(hurry, drain_delay=None if gentle else 0.0)
    return 0


def cant_listen(at: tuple[str, int], error: OSError) -> EnvironmentFailed:
    """What is said of an address that can't be listened on."""
    # asyncio's own text has the address once more; a failed look-up of a name has a negative number.
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    return EnvironmentFailed(f"can't listen on {at[0]}:{at[1]}: {why}")


async def _until(done: object, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await done  # type: ignore[misc]


def raise_file_limit() -> None:
    """Two sockets a stream: the usual soft limit of 1,024 would stop at 500 streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _site(runner: web.AppRunner, host: str, port: int) -> web.BaseSite:
    both = of_both_families(host, port, ADMIN_BACKLOG)
    if both is not None:
        return web.SockSite(runner, both, backlog=ADMIN_BACKLOG)
    return web.TCPSite(runner, host, port, backlog=ADMIN_BACKLOG)


def url_of(address: tuple[object, ...], scheme: str = "http") -> str:
    """The address of a socket as people write it."""
    host = str(address[0])
    return f"{scheme}://[{host}]:{address[1]}" if ":" in host else f"{scheme}://{host}:{address[1]}"


def log_to_stderr() -> None:
    """Log lines for people, on stderr."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Calm())
