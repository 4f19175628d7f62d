"""Services by their names in the cluster's DNS, for where EndpointSlices can't be read.

Beside the routing-weight path. Every name is asked for again after a few seconds, and at once when an address of it
can't be connected to. An answer that says nothing (a resolver that is down) leaves what was known; that there is no
such name any more counts when it was said twice. A Service with an address of its own has just that one: who is
behind it is then the network's choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from headrace_router.upstream.resolve import NotFound, Resolver, Unresolved

log = logging.getLogger("headrace.router")

EVERY: Final = 5.0
SOONEST: Final = 1.0
LOOK: Final = 0.2
# Answers in a row by which a name is believed to be gone.
GONE_AFTER: Final = 2


@dataclass(slots=True)
class _Name:
    addresses: list[str] | None = None
    due: float = 0.0
    asked: float = float("-inf")
    denied: int = 0
    asking: bool = False
    trouble: str | None = None


class DnsServices:
    """Names that are followed. changed: called with a name whose addresses changed, or that was answered first."""

    def __init__(self, resolver: Resolver, *, chance: Callable[[], float], changed: Callable[[str], None]) -> None:
        self._resolver = resolver
        self._chance = chance
        self._changed = changed
        self._names: dict[str, _Name] = {}
        self._wake = asyncio.Event()

    def want(self, names: Collection[str]) -> None:
        """Follow these from now on, and no others."""
        wanted = set(names)
        if wanted == self._names.keys():
            return
        self._names = {name: self._names.get(name) or _Name() for name in sorted(wanted)}
        self._wake.set()

    def addresses(self, name: str) -> list[str] | None:
        """What is known of a name; None: nothing yet."""
        known = self._names.get(name)
        return known.addresses if known is not None else None

    def trouble(self, name: str) -> str | None:
        """What the resolver said last, where that was no address."""
        known = self._names.get(name)
        return known.trouble if known is not None else None

    def answered(self) -> bool:
        """Whether every name was asked for once."""
        return all(known.addresses is not None or known.trouble is not None for known in self._names.values())

    def doubt(self, name: str) -> None:
        """An address of it could not be connected to: ask soon."""
        known = self._names.get(name)
        if known is not None:
            known.due = min(known.due, known.asked + SOONEST)
            self._wake.set()

    async def follow(self) -> None:
        """Ask until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now = loop.time()
                for name, known in self._names.items():
                    if known.due <= now and not known.asking:
                        known.asking = True
                        group.create_task(self._ask(name, known), name=f"resolve {name}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK if self._names else None):
                        await self._wake.wait()

    async def _ask(self, name: str, known: _Name) -> None:
        loop = asyncio.get_running_loop()
        try:
            found: list[str] | None = await self._resolver.addresses(name)
            known.denied, trouble = 0, None
        except NotFound as error:
            known.denied += 1
            # A resolver that never knew the name may know nothing of the cluster.
            found = [] if known.denied >= GONE_AFTER and known.addresses is not None else None
            trouble = str(error)
        except Unresolved as error:
            found, trouble = None, str(error)
        finally:
            known.asking = False
            known.asked = loop.time()
            known.due = known.asked + EVERY * (0.8 + 0.4 * self._chance())
        first = known.addresses is None and known.trouble is None
        if trouble is not None and trouble != known.trouble:
            log.warning("Service by name: %s", trouble)
        known.trouble = trouble
        if found is not None and found != known.addresses:
            known.addresses = found
            self._changed(name)
        elif first:
            self._changed(name)
