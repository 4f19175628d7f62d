"""The operator's heartbeat in a cluster: a Lease beside the tables, read now and then.

Beside the request path. Its age counts from when this process saw it change: clocks of nodes differ, and an operator
whose clock is slow is not dead. A Lease that can't be read says nothing, and what it said last only for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace_api.names import HEARTBEAT_LEASE, HEARTBEAT_STALE_SECONDS
from headrace_router.kube.client import ApiFault, KubeApi

EVERY: Final = 10.0
MAX_LEASE: Final = 65_536


class _Spec(msgspec.Struct):
    renew_time: str = msgspec.field(name="renewTime", default="")


class Lease(msgspec.Struct):
    """What of a Lease matters here."""

    spec: _Spec


_LEASE: Final = msgspec.json.Decoder(Lease)


class LeaseBeat:
    """The Lease of one namespace. clock: monotonic seconds; wall: epoch seconds; chance: numbers from 0 to 1."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{HEARTBEAT_LEASE}"
        self._clock = clock
        self._wall = wall
        self._chance = chance
        self._renewed = ""
        self._since = 0.0
        self._read = 0.0
        self.why: str | None = "not read yet"

    async def follow(self) -> None:
        """Read it until cancelled."""
        while True:
            try:
                self.take(_LEASE.decode(await self._api.get(self._path, {}, MAX_LEASE)).spec.renew_time)
            except ApiFault as fault:
                self.why = fault.reason
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.why = f"{self._path} can't be read: {self._api.shown(str(error))}"
            # At most every 10 s, and never all routers at once.
            await asyncio.sleep(EVERY * (1.0 + 0.2 * self._chance()))

    def take(self, renewed: str) -> None:
        """What the Lease's renewTime is now."""
        when = _epoch(renewed)
        if when is None:
            self.why = f"{self._path} was never renewed"
            return
        now = self._clock()
        if renewed != self._renewed:
            # Of the first that is seen only the clocks can tell how old it is.
            self._since = now if self._renewed else now - max(0.0, self._wall() - when)
            self._renewed = renewed
        self._read = now
        self.why = None

    def age(self) -> float | None:
        """Seconds since the renewal; None: unknown."""
        now = self._clock()
        if not self._renewed or (self.why is not None and now - self._read > HEARTBEAT_STALE_SECONDS):
            return None
        return now - self._since


def _epoch(text: str) -> float | None:
    """Seconds of an RFC 3339 time; one without a zone is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
