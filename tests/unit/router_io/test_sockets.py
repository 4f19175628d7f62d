"""Listening on every address of both families."""

from __future__ import annotations

import socket

import pytest

from headrace_router.listener.sockets import of_both_families


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has one family only")
def test_both_families_are_heard() -> None:
    """asyncio's own ``::`` is IPv6 alone: a pod with addresses of both would be deaf in one of them."""
    listening = of_both_families("::", 0, 8)
    assert listening is not None
    with listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=10).close()
        with pytest.raises(OSError, match="in use"):
            of_both_families("::", port, 8)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::1", "localhost"])
def test_other_hosts_are_asyncios_business(host: str) -> None:
    assert of_both_families(host, 0, 8) is None
