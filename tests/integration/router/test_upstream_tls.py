"""Engines by https: whom the pool believes, what it says, how it ends."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading

import pytest
import trustme

from headrace_router.http1.response_head import ResponseHead
from headrace_router.upstream import pool
from headrace_router.upstream.port import Address, Cut, NotSent
from support.router_process import until
from support.upstream_parts import ASKED, Noted, outgoing_of
from support.upstream_pool import SocketEngine, Wire, pooled, sockets, tried

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class TlsEngine:
    """``async with TlsEngine(...)``: answers each request with ``answer``; notes the names that were asked for."""

    def __init__(self, authority: trustme.CA, *names: str, answer: bytes = OK, goodbye: bool = True) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(self._context)
        self._context.sni_callback = lambda _, name, __: self.asked_for.append(name)
        self._answer = answer
        self._goodbye = goodbye
        self.asked_for: list[str | None] = []
        self.connections = 0
        self.received = 0

    async def __aenter__(self) -> TlsEngine:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                self.received = len(await reader.readexactly(length))
                writer.write(self._answer)
                await writer.drain()
                if b"Content-Length" not in self._answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        if self._goodbye:
            writer.close()
        else:
            raw = writer.get_extra_info("socket")
            os.dup2(os.open(os.devnull, os.O_RDWR), raw.fileno())  # an end without TLS's own
            writer.transport.abort()

    def at(self, host: str, server_name: str | None = None) -> Address:
        return Address("ns/a", f"https://{host}:{self.port}", server_name)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_tls_verifies_the_name_and_says_it(authority: trustme.CA) -> None:
    """issue: upstream https with CA file, SNI and verification on by default."""
    context = trusting(authority)
    asked: list[object] = []

    def trust(tls: object) -> ssl.SSLContext:
        asked.append(tls)
        return context

    async with (
        TlsEngine(authority, "use1-a.gpu.example", "localhost") as engine,
        pooled(lambda _: ["127.0.0.1"], trust) as used,
    ):
        for _ in range(3):
            assert (await tried(used, engine.at("127.0.0.1", "use1-a.gpu.example"))).payload == b"hello"
            assert (await tried(used, engine.at("localhost"))).payload == b"hello"
        assert (engine.connections, engine.asked_for) == (2, ["use1-a.gpu.example", "localhost"])
        assert asked == [None, None], "asked for new connections alone"
        for wrong in (engine.at("127.0.0.1"), engine.at("127.0.0.1", "other.example"), engine.at("a.example")):
            error = (await tried(used, wrong)).outcome
            assert isinstance(error, NotSent), "no engine has seen the request"
            assert "certificate verify failed" in str(error)
            assert not error.own


async def test_tickets_behind_a_tls_handshake_are_no_unasked_bytes(authority: trustme.CA) -> None:
    """TLS 1.3: an engine of its own process sends them before the request is there, and the kernel has them first."""
    context, serving = trusting(authority), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(serving)
    serving.num_tickets = 4

    ended: list[int] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            with raw, serving.wrap_socket(raw, server_side=True) as made:
                for _ in range(2):
                    if b"\r\n\r\n" not in made.recv(65536):
                        break
                    made.sendall(OK)
            ended.append(1)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        address = Address("ns/a", f"https://localhost:{listener.getsockname()[1]}")
        told: list[float] = []
        async with pooled(lambda _: ["127.0.0.1"], lambda _: context) as used:

            def connected(seconds: float) -> None:
                # What a busy loop does: the tickets have come before the connection is looked at.
                told.append(seconds)
                (connection,) = used.connections
                assert connection._unread is not None
                connection._unread.poll(2000)

            used.on_connect = connected
            for number in range(1, 7):
                sink = await tried(used, address)
                assert sink.outcome == "ended", sink.outcome
                # Whether it closes before the next request is the engine's thread's luck otherwise.
                await until(lambda: len(ended) == number // 2)  # noqa: B023
            assert len(told) == 3, "and it is used again"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(20)


@pytest.mark.parametrize("trusts", ["another", "the system's"])
async def test_tls_by_an_unknown_authority_is_refused(authority: trustme.CA, trusts: str) -> None:
    other = trusting(trustme.CA())
    unreached: list[str] = []
    async with (
        TlsEngine(authority, "localhost") as engine,
        pooled(None, (lambda _: other) if trusts == "another" else None) as used,
    ):
        used.on_unreached = unreached.append
        error = (await tried(used, engine.at("localhost"))).outcome
        assert isinstance(error, NotSent)
        assert "certificate verify failed" in str(error)
        assert engine.received == 0
        assert unreached == ["ns/a"]


async def test_what_was_believed_before_is_kept_by_no_connection(authority: trustme.CA) -> None:
    """An authority that is taken away must not live on in connections that are always busy."""
    context = trusting(authority)

    class Busy(Noted):
        def head_came(self, head: ResponseHead) -> None:
            super().head_came(head)
            used.retire("ns/a")

    async with TlsEngine(authority, "localhost") as engine, pooled(None, lambda _: context) as used:
        used.retire("ns/unknown")
        await tried(used, engine.at("localhost"))
        busy = Busy()
        used.send(engine.at("localhost"), ASKED, busy, connect=20.0)
        assert await busy.end() == "ended"
        assert engine.connections == 1
        context = trusting(trustme.CA())
        assert (await tried(used, engine.at("localhost"))).kind == "NotSent"
        await until(lambda: not used.connections)


async def test_an_authority_that_is_missing_is_not_sent_and_says_nothing_of_the_network() -> None:
    unreached: list[str] = []

    def missing(_: object) -> ssl.SSLContext:
        raise NotSent("the authority of ns/a is not mounted")

    async with pooled(None, missing) as used:
        used.on_unreached = unreached.append
        sink = await tried(used, Address("ns/a", "https://127.0.0.1:9"))
        assert str(sink.outcome) == "the authority of ns/a is not mounted"
        assert unreached == []


@pytest.mark.parametrize("server_name", [".bad", "a" * 300, "nul\x00", "\ud800"])
async def test_names_that_no_certificate_can_have_are_not_sent(authority: trustme.CA, server_name: str) -> None:
    context = trusting(authority)
    async with TlsEngine(authority, "localhost") as engine, pooled(None, lambda _: context) as used:
        sink = await tried(used, engine.at("127.0.0.1", server_name))
        assert sink.kind == "NotSent"
        assert "no name that a certificate can have" in str(sink.outcome)
        assert (await tried(used, engine.at("localhost", ""))).kind == "ended", "none is the URL's own"


async def test_the_connect_limit_covers_tls(authority: trustme.CA) -> None:
    async def silent(wire: Wire) -> None:
        await wire.closed()

    context = trusting(authority)
    async with SocketEngine(silent) as engine, pooled(None, lambda _: context) as used:
        sink = await tried(used, Address("ns/a", f"https://127.0.0.1:{engine.port}"), connect=0.2)
        assert "within 0.2 s" in str(sink.outcome)
        await until(lambda: engine.open == 0)


async def test_an_engine_that_speaks_no_tls_is_not_sent(authority: trustme.CA) -> None:
    async def plain(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await wire.closed()

    context = trusting(authority)
    async with SocketEngine(plain) as engine, pooled(None, lambda _: context) as used:
        assert (await tried(used, Address("ns/a", f"https://127.0.0.1:{engine.port}"))).kind == "NotSent"


async def test_a_large_body_goes_through_tls_piece_by_piece(authority: trustme.CA) -> None:
    context = trusting(authority)
    async with TlsEngine(authority, "localhost") as engine, pooled(None, lambda _: context) as used:
        for _ in range(2):
            sink = await tried(used, engine.at("localhost"), outgoing_of(body=bytes(8 * 2**20)))
            assert (sink.outcome, engine.received) == ("ended", 8 * 2**20)
        assert engine.connections == 1


@pytest.mark.parametrize("goodbye", [True, False])
async def test_an_unframed_answer_over_tls_ends_with_tlss_own_end(authority: trustme.CA, goodbye: bool) -> None:
    """RFC 9112 9.8: an end that anybody on the way could have made is none."""
    context = trusting(authority)
    answer = b"HTTP/1.1 200 OK\r\n\r\nhello"
    async with (
        TlsEngine(authority, "localhost", answer=answer, goodbye=goodbye) as engine,
        pooled(None, lambda _: context) as used,
    ):
        sink = await tried(used, engine.at("localhost"))
        assert sink.payload == b"hello"
        assert sink.outcome == "ended" if goodbye else isinstance(sink.outcome, Cut)


async def test_closed_tls_connections_leave_no_socket(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_EXPIRE_EVERY", 0.02)
    context = trusting(authority)
    async with TlsEngine(authority, "localhost") as engine:
        before = sockets()
        async with pooled(None, lambda _: context) as used:
            sinks = [Noted() for _ in range(40)]
            legs = [used.send(engine.at("localhost"), ASKED, sink, connect=20.0) for sink in sinks]
            for number, leg in enumerate(legs):
                if number % 2:
                    leg.abort()
                    await asyncio.sleep(0.001)
            for sink in sinks[::2]:
                assert await sink.end() == "ended"
        await until(lambda: sockets() == before)
