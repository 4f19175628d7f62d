"""What a router process knows by itself of engines and endpoints: counts and health, which outlive tables.

On the request path, mutable, owned by one thread. Identity is the engine's id and, within it, the endpoint: never the
url alone, because an address may serve another engine tomorrow. An engine that leaves and comes back gets a new
object, so that its old requests end on the old one and no count is ever carried over, revived or negative.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

NEVER: Final = -1e18


class EndpointState:
    """One address of one engine.

    failures: consecutive ones; late: distinct keys whose first byte timed out since the last answer. ejected, until:
    out of rotation till then, afterwards one trial at a time. epoch: how often it was ejected, which tells outcomes
    of attempts begun before from those begun after. full_until: the engine's own word that it takes nothing.
    who: the pod there, "" where that isn't known. own: requests in flight of this process.
    """

    __slots__ = (
        "ejected",
        "epoch",
        "failures",
        "full_until",
        "late",
        "level",
        "own",
        "probed",
        "ready",
        "restored",
        "trial",
        "until",
        "url",
        "who",
    )

    def __init__(self, url: str, who: str = "") -> None:
        self.url = url
        self.who = who
        self.own = 0
        self.failures = 0
        self.late: set[int] | None = None
        self.ejected = False
        self.until = NEVER
        self.epoch = 0
        self.level = 0
        self.restored = NEVER
        self.trial = False
        self.full_until = NEVER
        self.ready = True
        self.probed = NEVER

    @property
    def in_flight(self) -> int:
        """Requests in flight, of all processes where there are several (core/shared.py)."""
        return self.own

    def take(self) -> None:
        """One more request in flight."""
        self.own += 1

    def give_back(self) -> None:
        """The request ended, whichever way."""
        self.own -= 1

    def open(self, now: float) -> bool:
        """Whether it takes a new request: ready, not full, and not ejected unless its trial is due."""
        if not self.ready or self.full_until > now:
            return False
        return not self.ejected or (now >= self.until and not self.trial)

    def healthy(self, now: float) -> bool:
        """Whether nothing at all speaks against it."""
        return self.ready and self.full_until <= now and not self.ejected


def endpoints_at(
    urls: Collection[str],
    before: Sequence[EndpointState],
    make: Callable[[str, str], EndpointState] = EndpointState,
) -> tuple[EndpointState, ...]:
    """Endpoints at these addresses, sorted by url; who stays keeps counts and health. make: a new one's state.

    urls: a mapping says who is at each. Another pod at an old address is a new endpoint: the one before it may have
    been ejected, and what still runs there ends there.
    """
    known = {endpoint.url: endpoint for endpoint in before}
    pods = urls if isinstance(urls, Mapping) else {}
    found = []
    for url in sorted(set(urls)):
        endpoint, who = known.get(url), pods.get(url, "")
        other = endpoint is None or (who and endpoint.who and who != endpoint.who)
        found.append(make(url, who) if endpoint is None or other else endpoint)
    return tuple(found)


class Pool:
    """The engines that serve one model (or several models alike) under one table: who is out, what is in flight.

    own: requests in flight of this process. limit: how many it may have there, 0 where an engine has no limit.
    """

    __slots__ = ("_changes", "limit", "out", "own", "total")

    def __init__(self) -> None:
        self._changes = 0
        self.total = 0
        self.out = 0
        self.own = 0
        self.limit = 0

    @property
    def in_flight(self) -> int:
        """Requests in flight, of all processes."""
        return self.own

    @property
    def changes(self) -> int:
        """How often something happened by which one of the engines may take requests again."""
        return self._changes

    def recount(self, own: int) -> None:
        """Requests in flight of this process are ``own``: its engines are others now."""
        self.own = own

    def take(self) -> None:
        """One more request in flight."""
        self.own += 1

    def give_back(self) -> None:
        """The request ended."""
        self.own -= 1
        self._changes += 1

    def changed(self) -> None:
        """Something may speak for an engine again."""
        self._changes += 1


class EngineState:
    """One engine, from the table that brought it to the table that left it out.

    troubled: something may speak against an endpoint, so look closer. pools: those of the last view that held it.
    own: requests in flight of this process.
    """

    __slots__ = ("endpoints", "id", "own", "pools", "troubled")

    def __init__(self, engine: str) -> None:
        self.id = engine
        self.own = 0
        self.endpoints: tuple[EndpointState, ...] = ()
        self.pools: tuple[Pool, ...] = ()
        self.troubled = False

    @property
    def in_flight(self) -> int:
        """Requests in flight, of all processes."""
        return self.own

    def endpoint(self, url: str, who: str = "") -> EndpointState:
        """The state of a new address of it."""
        return EndpointState(url, who)

    def take(self, endpoint: EndpointState) -> None:
        """One more request in flight."""
        self.own += 1
        endpoint.take()
        for pool in self.pools:
            pool.take()

    def give_back(self, endpoint: EndpointState) -> None:
        """The request ended, whichever way."""
        self.own -= 1
        endpoint.give_back()
        for pool in self.pools:
            pool.give_back()

    def changed(self) -> None:
        """Something may speak for it again."""
        for pool in self.pools:
            pool.changed()

    def count_out(self, endpoint: EndpointState, change: int) -> None:
        """Keep the pools' numbers of ejected endpoints; one that the engine no longer has counts nowhere."""
        if endpoint in self.endpoints:
            for pool in self.pools:
                pool.out += change

    def settle(self, now: float) -> bool:
        """Look again whether anything speaks against an endpoint."""
        self.troubled = not all(endpoint.healthy(now) for endpoint in self.endpoints)
        return self.troubled
