"""Replicas behind Services: which endpoints are ready, which are gone, and whether somebody else saw that too.

On the engine-signal path; no I/O, no clocks. Ready endpoints are the replicas; a Service that was never listed is
unknown. What is lost counts as agreed when the pod was being deleted (somebody's word), when the endpoint's own page or
its metric source says so, or when routers can not connect; the decision holds a mass loss that nobody agrees with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace_api.endpoint_slices import Endpoint

Key = tuple[str, str]
"""A replica: its url, and its pod as ``namespace/pod``."""


class Loss(NamedTuple):
    """An endpoint that was ready and is not: whose, which, since when (steady seconds)."""

    engine: str
    key: Key
    since: float


@dataclass(slots=True)
class _Pool:
    ready: dict[Key, Endpoint] = field(default_factory=dict)
    lost: dict[Key, Endpoint] = field(default_factory=dict)
    since: dict[Key, float] = field(default_factory=dict)


def key_of(engine: str, endpoint: Endpoint) -> Key:
    """What tells this endpoint from others: also from another pod at the same address."""
    return endpoint.url, f"{engine.partition('/')[0]}/{endpoint.pod}" if endpoint.pod else ""


class ServicePools:
    """All engines' Services between looks."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def retarget(self, listed: Mapping[str, tuple[Endpoint, ...] | None]) -> None:
        """Endpoints by engine as they are listed now; None: its Service is not. What was known of it then holds."""
        self._pools = {name: pool for name, pool in self._pools.items() if name in listed}
        for name, endpoints in listed.items():
            if endpoints is None:
                continue
            first = name not in self._pools
            pool = self._pools.setdefault(name, _Pool())
            before = pool.ready
            pool.ready = {key_of(name, one): one for one in endpoints if one.ready}
            ending = {key_of(name, one) for one in endpoints if one.terminating}
            gone = {} if first else {**pool.lost, **before}
            pool.lost = {key: one for key, one in gone.items() if key not in pool.ready and key not in ending}
            pool.since = {key: at for key, at in pool.since.items() if key in pool.lost}

    def known(self, engine: str) -> bool:
        """Whether the engine's Service was ever listed."""
        return engine in self._pools

    def ready(self, engine: str) -> tuple[Endpoint, ...]:
        """Its ready endpoints."""
        return tuple(self._pools[engine].ready.values())

    def to_read(self) -> dict[str, tuple[Endpoint, ...]]:
        """Endpoints to read by engine: the ready ones, and those that are lost on one source's word."""
        return {name: self.to_read_of(name) for name in self._pools}

    def to_read_of(self, engine: str) -> tuple[Endpoint, ...]:
        """The same of one engine."""
        pool = self._pools[engine]
        return (*pool.ready.values(), *pool.lost.values())

    def settle(self, now: float, agrees: Callable[[Loss], bool]) -> None:
        """Forget losses that somebody else saw too; to be asked again until then."""
        for name, pool in self._pools.items():
            for key in list(pool.lost):
                since = pool.since.setdefault(key, now)
                if agrees(Loss(name, key, since)):
                    del pool.lost[key], pool.since[key]

    def agreed(self, engine: str) -> bool:
        """Whether every loss of the engine is agreed."""
        return not self._pools[engine].lost
