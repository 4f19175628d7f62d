"""Clients of a listener between fakes: the test moves the time, sends bytes, and reads what was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from headrace_router.listener.client_connection import ClientConnection
from headrace_router.listener.limits import Limits
from headrace_router.listener.listener import Listener
from support.fake_loop import FakeLoop
from support.stub_proxy import StubProxy


class FakeTransport:
    """A client's socket. ``unsent``: bytes that the client hasn't taken."""

    def __init__(self, loop: FakeLoop) -> None:
        self._loop = loop
        self.protocol: ClientConnection
        self.written = b""
        self.ended = self.closing = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        assert not self.closing
        self.written += data

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class ClientSide:
    """Connects clients to a listener of its own."""

    def __init__(self, loop: FakeLoop, limits: Limits, proxy: StubProxy | None = None) -> None:
        self.loop = loop
        self.proxy = proxy or StubProxy()
        self.listener = Listener(cast(Any, self.proxy), limits)

    def connect(self) -> FakeTransport:
        """A new client."""
        transport = FakeTransport(self.loop)
        transport.protocol = cast(ClientConnection, self.listener())
        transport.protocol.connection_made(cast(Any, transport))
        return transport

    def held(self, client: FakeTransport) -> Any:
        """The exchange of this client that the test is to end."""
        return next(exchange for exchange in self.proxy.held if exchange.client is client.protocol)


@contextmanager
def client_side(limits: Limits, proxy: StubProxy | None = None) -> Iterator[ClientSide]:
    """See ClientSide; in its own loop's time."""
    loop = FakeLoop()
    with loop.running():
        yield ClientSide(loop, limits, proxy)
