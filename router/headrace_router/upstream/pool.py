"""Connections to engines, kept between requests.

On the request path.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Hashable

from headrace_router.upstream.port import Address, Leg, Outgoing, Sink
from headrace_router.upstream.resolve import Resolver

Trust = Callable[[Hashable], ssl.SSLContext]


class Pool:
    """See UpstreamPool. To be made inside a running loop.

    on_connect: told the seconds that each new connection took. on_unreached: told an engine that couldn't be reached.
    """

    def __init__(self, resolver: Resolver, trust: Trust | None = None) -> None:
        self._resolver = resolver
        self._trust = trust
        self.on_connect: Callable[[float], None] | None = None
        self.on_unreached: Callable[[str], None] | None = None

    def send(self, address: Address, outgoing: Outgoing, sink: Sink, *, connect: float) -> Leg:
        """See UpstreamPool."""
        raise NotImplementedError

    def renew(self, engine: str) -> None:
        """See UpstreamPool."""
        raise NotImplementedError

    def retain(self, engines: Collection[str]) -> None:
        """See UpstreamPool."""
        raise NotImplementedError

    async def fetch(self, address: Address, target: str, timeout: float) -> int:  # noqa: ASYNC109
        """See UpstreamPool."""
        raise NotImplementedError

    async def close(self) -> None:
        """See UpstreamPool."""
        raise NotImplementedError
