"""How far engines are from here: one TCP connect a minute to each, the median of five minutes.

Beside every path: where a policy's network is ``measured`` the operator reads it from the metrics page. The kernel's
own figure for the handshake is taken where it gives one, because a busy loop is late and would make every engine look
far. Must not hold a connection, nor ask many at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headrace_router.core.selection import Selector
from headrace_router.upstream.resolve import NotFound, Resolver, Unresolved

# About once a minute, and so that five minutes always hold five samples.
EVERY: Final = 50.0
SPREAD: Final = 8.0
WINDOW: Final = 300.0
FIRST_WITHIN: Final = 10.0
LOOK: Final = 1.0
AT_ONCE: Final = 128
LIMIT: Final = 3.0
# struct tcp_info (Linux): 8 bytes, then 32-bit numbers; tcpi_rtt, in microseconds, is the 16th.
_RTT_AT: Final = 8 + 15 * 4

Connect = Callable[[str, int], Awaitable[float]]


class RoundTrip(NamedTuple):
    """Median of the samples of five minutes, in seconds, and their number."""

    seconds: float
    samples: int


class _Engine:
    __slots__ = ("asking", "due", "samples")

    def __init__(self, due: float) -> None:
        self.due = due
        self.asking = False
        self.samples: deque[tuple[float, float]] = deque(maxlen=16)


class RoundTrips:
    """Measures while it runs. clock: monotonic seconds; connect: seconds that connecting to a host and port took."""

    def __init__(
        self, selector: Selector, connect: Connect, *, clock: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        self._selector = selector
        self._connect = connect
        self._clock = clock
        self._chance = chance
        self._engines: dict[str, _Engine] = {}

    def measured(self) -> dict[str, RoundTrip]:
        """By engine, where there is a sample."""
        since = self._clock() - WINDOW
        found = {}
        for name, engine in self._engines.items():
            recent = [seconds for at, seconds in engine.samples if at >= since]
            if recent:
                found[name] = RoundTrip(median(recent), len(recent))
        return found

    def due(self) -> list[str]:
        """Engines to be asked now, and so not again for a minute: those of tables that want it."""
        policies = (policy.table for policy in self._selector.view.policies if policy.table.measure_round_trips)
        wanted = {engine.id for table in policies for engine in table.engines}
        now = self._clock()
        if wanted != self._engines.keys():
            self._engines = {
                name: self._engines.get(name) or _Engine(now + FIRST_WITHIN * self._chance()) for name in sorted(wanted)
            }
        places = AT_ONCE - sum(engine.asking for engine in self._engines.values())
        ready = [name for name, engine in self._engines.items() if engine.due <= now and not engine.asking]
        for name in ready[: max(0, places)]:
            engine = self._engines[name]
            engine.asking = True
            engine.due = now + EVERY + SPREAD * self._chance()
        return ready[: max(0, places)]

    async def run(self) -> None:
        """Measure until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for name in self.due():
                    group.create_task(self.measure(name), name=f"round trip {name}")
                await asyncio.sleep(LOOK)

    async def measure(self, name: str) -> None:
        """Connect once to one of an engine's addresses, by chance."""
        engine = self._engines[name]
        try:
            known = self._selector.view.engines.get(name)
            endpoints = known.endpoints if known is not None else ()
            if endpoints:
                url = urlsplit(endpoints[int(self._chance() * len(endpoints)) % len(endpoints)].url)
                port = url.port or (443 if url.scheme == "https" else 80)
                # Who can't be connected to has no round trip; its health is others' business.
                with contextlib.suppress(OSError, TimeoutError, NotFound, Unresolved):
                    seconds = await self._connect(url.hostname or "", port)
                    engine.samples.append((self._clock(), seconds))
        finally:
            engine.asking = False


def connecting(resolver: Resolver) -> Connect:
    """Connects by TCP; looking the name up doesn't count."""

    async def connect(host: str, port: int) -> float:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            socket.inet_pton(family, host)
        except OSError:
            host = (await resolver.addresses(host))[0]
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return await _connect(family, (host, port))

    return connect


async def _connect(family: int, address: tuple[str, int]) -> float:
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.setblocking(False)
        began = perf_counter()
        async with asyncio.timeout(LIMIT):
            await asyncio.get_running_loop().sock_connect(made, address)
        took = perf_counter() - began
        return min(took, _by_kernel(made) or took)


def _by_kernel(made: socket.socket) -> float:
    """The handshake's round trip as the kernel saw it; 0 where it doesn't say."""
    try:
        told = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_AT + 4)
        microseconds: int = struct.unpack_from("=I", told, _RTT_AT)[0]
    except (OSError, AttributeError, struct.error):
        return 0.0
    return microseconds / 1e6
