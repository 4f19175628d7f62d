"""What stands around a connection to an engine in tests: a sink that notes everything, a transport, a keeper."""

from __future__ import annotations

import asyncio

from headrace_router.http1.response_head import ResponseHead
from headrace_router.upstream.attempt import Attempt
from headrace_router.upstream.connection import Connection, Keeper
from headrace_router.upstream.port import Cut, Lost, NotSent, Outgoing, Sink


def outgoing_of(
    method: str = "POST", target: str = "/v1/x", lines: bytes = b"A: 1\r\n", body: bytes = b"{}"
) -> Outgoing:
    """A request to an engine."""
    return Outgoing(method, target, [lines], body)


ASKED = outgoing_of()


class Noted(Sink):
    """A sink. ``outcome``: "ended", or the error; never twice."""

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.raw = b""
        self.payload = b""
        self.outcome: str | NotSent | Lost | Cut | None = None
        self.calls = 0
        self.over = asyncio.Event()

    @property
    def kind(self) -> str:
        """The outcome in a word."""
        return self.outcome if isinstance(self.outcome, str) else type(self.outcome).__name__

    def head_came(self, head: ResponseHead) -> None:
        self._noted()
        assert self.head is None, "one head an answer"
        self.head = head

    def body_came(self, raw: bytes, payload: bytes) -> None:
        self._noted()
        assert self.head is not None
        assert raw
        assert self.head.chunked or raw == payload
        self.raw += raw
        self.payload += payload

    def body_ended(self) -> None:
        self._noted()
        assert self.head is not None
        self.outcome = "ended"
        self.over.set()

    def attempt_failed(self, error: NotSent | Lost | Cut) -> None:
        self._noted()
        assert isinstance(error, Cut) == (self.head is not None)
        self.outcome = error
        self.over.set()

    def _noted(self) -> None:
        assert self.outcome is None, f"called after {self.outcome}"
        self.calls += 1

    async def end(self, seconds: float = 20.0) -> str:
        """Wait for the outcome, in a word."""
        async with asyncio.timeout(seconds):
            await self.over.wait()
        return self.kind


class FakeTransport:
    """Keeps what is written; ``full``: bytes that nobody takes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.full = 0
        self.closed: str | None = None
        self.reading = True

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.full

    def is_closing(self) -> bool:
        return self.closed is not None

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeKeeper(Keeper):
    """Notes what it gets back."""

    def __init__(self) -> None:
        super().__init__(b"engine:8000")
        self.kept: list[Connection] = []
        self.gone: list[Connection] = []

    def keep(self, connection: Connection) -> None:
        connection.used = True
        self.kept.append(connection)

    def lost(self, connection: Connection) -> None:
        self.gone.append(connection)


class Asked:
    """A connection on which a request is under way, as an engine and a loop see it."""

    def __init__(self, outgoing: Outgoing = ASKED, *, used: bool = False) -> None:
        self.keeper = FakeKeeper()
        self.transport = FakeTransport()
        self.connection = Connection(self.keeper, None)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.connection.used = used
        self.ask(outgoing)

    def ask(self, outgoing: Outgoing = ASKED) -> None:
        self.sink = Noted()
        self.attempt = Attempt(self.sink)
        self.connection.carry(self.attempt, outgoing)
        assert self.sink.calls == 0, "no callback inside"

    def feed(self, *pieces: bytes) -> None:
        """Reads, as long as the connection is read."""
        for piece in pieces:
            if piece and self.transport.closed is None:
                self.connection.data_received(piece)

    def end(self, how: str) -> None:
        """``eof`` or ``reset`` by the engine."""
        if how == "eof" and self.transport.closed is None:
            assert not self.connection.eof_received()
        self.transport.close()
        self.connection.connection_lost(ConnectionResetError(104, "reset") if how == "reset" else None)
