"""Listening sockets. ``[::]`` means every address of both families, as it does for most programs on Linux.

Beside the request path. asyncio would make it IPv6 alone, and a pod with addresses of both families would be deaf in
one of them. Must not decide what is served where.
"""

from __future__ import annotations

import socket


def of_both_families(host: str, port: int, backlog: int) -> socket.socket | None:
    """A socket for ``::``; None for every other host, and where the machine can't (the caller listens by name).

    Raises:
        OSError: the address is taken.
    """
    if host != "::" or not socket.has_dualstack_ipv6():
        return None
    return socket.create_server((host, port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
