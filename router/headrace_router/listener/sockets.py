"""Listening sockets. ``[::]`` means every address of both families, as it does for most programs on Linux.

Beside the request path. asyncio would make it IPv6 alone, and a pod with addresses of both families would be deaf in
one of them. Must not decide what is served where.
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Iterable
from typing import Any, Final

_MAPPED: Final = "::ffff:"


def of_both_families(host: str, port: int, backlog: int) -> socket.socket | None:
    """A socket for ``::``; None for every other host, and where the machine can't (the caller listens by name).

    Raises:
        OSError: the address is taken.
    """
    if host != "::" or not socket.has_dualstack_ipv6():
        return None
    return socket.create_server((host, port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)


async def listening(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host; ``::`` is both families.

    Raises:
        OSError: the name has no address, or one of them is taken.
    """
    if (both := of_both_families(host, port, backlog)) is not None:
        return [both]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return _listening(found, backlog)


def listening_now(host: str, port: int, backlog: int) -> list[socket.socket]:
    """The same where no loop runs yet; blocks.

    Raises:
        OSError: the name has no address, or one of them is taken.
    """
    if (both := of_both_families(host, port, backlog)) is not None:
        return [both]
    return _listening(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE), backlog)


def _listening(found: Iterable[tuple[Any, ...]], backlog: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            made.append(socket.create_server(address, family=family, backlog=backlog))
    except OSError:
        for each in made:
            each.close()
        raise
    return made


def address_of(peer: Any) -> str | None:
    """A peer's address as others write it: on a socket of both families IPv4 comes in IPv6's clothes, by which no list
    of trusted proxies knows it. None: it has none."""
    if not isinstance(peer, tuple):
        return None
    address: str = peer[0]
    return address.removeprefix(_MAPPED) if "." in address else address


def unread(transport: asyncio.BaseTransport) -> bool:
    """Whether bytes have come for a connection that its reader hasn't seen; False where nobody can tell."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return False
    try:
        waiting = fcntl.ioctl(connection.fileno(), termios.FIONREAD, struct.pack("i", 0))
    except (OSError, ValueError):
        return False
    return bool(struct.unpack("i", waiting)[0])


def arrived(listening: socket.socket) -> bool:
    """Whether a connection waits to be accepted; for now, if others accept here too."""
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    return bool(poll.poll(0))


def keep_alive(sockets: Iterable[socket.socket]) -> None:
    """Ask the kernel to notice peers that vanished; what a socket accepts inherits it."""
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
