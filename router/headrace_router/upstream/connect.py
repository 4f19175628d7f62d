"""New connections to engines: name, address, TCP, TLS.

Beside the usual request, which finds a kept connection. A name's addresses are good for a few seconds, because the
system's resolver doesn't say how long they are; where it says nothing, the last ones are held on to, and where they
can't be connected to they are asked for again. Must not keep connections or time.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Final, TypeVar
from urllib.parse import urlsplit

import aiohappyeyeballs

from headrace_router.upstream.port import NotSent
from headrace_router.upstream.resolve import NotFound, Resolver, Unresolved, usable

# Seconds: an answer is good for; not asked again before; held on to while the resolver says nothing.
TTL: Final = 10.0
SOONEST: Final = 1.0
HELD: Final = 120.0
# Seconds that a known name's next answer is waited for.
_PATIENCE: Final = 0.5
# Before the next address is tried beside one that doesn't answer (RFC 8305, 5: 250 ms).
_STAGGER: Final = 0.25
# A TLS connection that is closed isn't kept for the other side's goodbye.
_TLS_GOODBYE: Final = 1.0
_OWN_SHORTAGE: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}
)

AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]
P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Origin:
    """A URL's parts. ``host_line``: what Host says, without the scheme's own port."""

    https: bool
    host: str
    port: int
    host_line: bytes


def origin(url: str) -> Origin:
    """Parts of a canonical URL (headrace_api.urls)."""
    parts = urlsplit(url)
    https = parts.scheme == "https"
    own = 443 if https else 80
    host = parts.hostname or ""
    port = parts.port or own
    shown = f"[{host}]" if ":" in host else host
    return Origin(https, host, port, (shown if port == own else f"{shown}:{port}").encode("ascii"))


@dataclass(slots=True)
class _Name:
    addresses: list[str]
    answered: float
    good_until: float
    turn: int = 0


class Names:
    """Addresses of names, each asked for once at a time. To be made inside a running loop."""

    def __init__(self, resolver: Resolver, clock: Callable[[], float]) -> None:
        self._resolver = resolver
        self._clock = clock
        self._known: dict[str, _Name] = {}
        self._asking: dict[str, asyncio.Task[_Name]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Addresses to try, in turns another one first.

        Raises:
            NotFound, Unresolved: see resolve.
        """
        if _is_address(host):
            return usable(host, [host])
        known = self._known.get(host)
        if known is None or self._clock() >= known.good_until:
            known = await self._renewed(host, known)
        known.turn = (known.turn + 1) % len(known.addresses)
        return known.addresses[known.turn :] + known.addresses[: known.turn]

    def doubt(self, host: str) -> None:
        """None of its addresses could be connected to."""
        known = self._known.get(host)
        if known is not None:
            known.good_until = min(known.good_until, known.answered + SOONEST)

    async def close(self) -> None:
        """Wait for no answer any more."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _renewed(self, host: str, known: _Name | None) -> _Name:
        asking = self._asking.get(host)
        if asking is None:
            asking = self._asking[host] = asyncio.create_task(self._look_up(host), name=f"resolve {host}")
            asking.add_done_callback(partial(self._asked, host))
        # Who gives up doesn't take the answer from the others.
        await asyncio.wait({asking}, timeout=_PATIENCE if known is not None else None)
        if known is not None and not asking.done() and self._clock() - known.answered < HELD:
            return known
        return await asyncio.shield(asking)

    def _asked(self, host: str, asking: asyncio.Task[_Name]) -> None:
        del self._asking[host]
        if not asking.cancelled():
            asking.exception()  # maybe nobody waits any more

    async def _look_up(self, host: str) -> _Name:
        try:
            found = await self._resolver.addresses(host)
        except (NotFound, Unresolved) as error:
            held, now = self._known.get(host), self._clock()
            if isinstance(error, NotFound) or held is None or now - held.answered >= HELD:
                self._known.pop(host, None)
                raise
            held.good_until = now + SOONEST
            return held
        now = self._clock()
        for old in [name for name, known in self._known.items() if now - known.answered >= HELD]:
            del self._known[old]
        before = self._known.get(host)
        known = self._known[host] = _Name(found, now, now + TTL, before.turn if before is not None else -1)
        return known


async def connect(
    to: Origin,
    names: Names,
    make: Callable[[socket.socket], P],
    *,
    server_name: str | None,
    context: ssl.SSLContext | None,
) -> P:
    """A new connection. ``make`` makes its protocol from the socket beneath.

    Raises:
        NotSent: see there.
    """
    shown = server_name or to.host
    if context is not None:
        _check_name(context, shown)
    try:
        addresses = await names.addresses(to.host)
    except (NotFound, Unresolved) as error:
        raise NotSent(str(error), own=_no_socket_left()) from error
    loop = asyncio.get_running_loop()
    try:
        raw = await aiohappyeyeballs.start_connection(
            [_addr_info(address, to.port) for address in addresses], happy_eyeballs_delay=_STAGGER
        )
        if context is None:
            _, made = await loop.create_connection(lambda: make(raw), sock=raw)
        else:
            _, made = await loop.create_connection(
                lambda: make(raw),
                sock=raw,
                ssl=context,
                server_hostname=shown,
                ssl_shutdown_timeout=_TLS_GOODBYE,
            )
    except (OSError, RuntimeError, ValueError) as error:
        own = getattr(error, "errno", None) in _OWN_SHORTAGE
        if not own:
            names.doubt(to.host)
        # aiohappyeyeballs' frame knows what it raised: with the way back, only a collection would end it.
        raise NotSent(str(error) or type(error).__name__, own=own) from error.with_traceback(None)
    return made


def _check_name(context: ssl.SSLContext, shown: str) -> None:
    """Before there is a socket: a loop that finds out in the handshake forgets to close it."""
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=shown)
    except (ValueError, TypeError) as error:
        raise NotSent(f"{shown!r:.120} is no name that a certificate can have") from error


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _addr_info(address: str, port: int) -> AddrInfo:
    host, _, zone = address.partition("%")
    if ":" not in host:
        return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))
    scope = int(zone) if zone.isdigit() else socket.if_nametoindex(zone) if zone else 0
    return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, scope))


def _no_socket_left() -> bool:
    """Without a descriptor the resolver says of every name that there is no answer."""
    try:
        socket.socket().close()
    except OSError as error:
        return error.errno in _OWN_SHORTAGE
    return False
