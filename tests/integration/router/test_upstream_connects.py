"""New connections to engines: refused, black-holed, by name, by TLS, without sockets of our own."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trustme

from headrace_router.http1.response_head import ResponseHead
from headrace_router.upstream import pool
from headrace_router.upstream.connect import TTL
from headrace_router.upstream.port import Address, Cut, NotSent
from support.router_process import until
from support.upstream_parts import ASKED, Noted
from support.upstream_pool import SocketEngine, Wire, answering, pooled, sockets, tried

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@contextmanager
def black_hole() -> Iterator[int]:
    """A port on 127.0.0.1 to which a connect never completes."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        port = hole.getsockname()[1]
        fillers = []
        try:
            for _ in range(8):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
                fillers.append(filler)
            yield port
        finally:
            for filler in fillers:
                filler.close()


@contextmanager
def bound_only() -> Iterator[int]:
    """A port that refuses."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def test_refused_is_not_sent_and_not_our_own_fault() -> None:
    unreached: list[str] = []
    with bound_only() as port:
        async with pooled() as used:
            used.on_unreached = unreached.append
            for _ in range(3):
                error = (await tried(used, Address("ns/a", f"http://127.0.0.1:{port}"))).outcome
                assert isinstance(error, NotSent)
                assert not error.own
                assert "127.0.0.1" in str(error)
            assert unreached == ["ns/a"] * 3
            assert not used._endpoints


async def test_a_black_hole_costs_its_connect_limit_and_nobody_else() -> None:
    """SCA-02 (https://github.com/BerriAI/litellm/issues/12669): many limits, one timer; other engines go on."""
    unreached: list[str] = []
    with black_hole() as port:
        async with SocketEngine(answering(OK), engine="ns/b") as engine, pooled() as used:
            used.on_unreached = unreached.append
            hole = Address("ns/a", f"http://127.0.0.1:{port}")
            sinks = [Noted() for _ in range(100)]
            for sink in sinks[:99]:
                used.send(hole, ASKED, sink, connect=0.3)
            used.send(hole, ASKED, sinks[99], connect=0.0)
            for _ in range(20):
                assert (await tried(used, engine.address)).kind == "ended"
            for sink in sinks[:99]:
                assert await sink.end() == "NotSent"
                assert "within 0.3 s" in str(sink.outcome)
            assert unreached == ["ns/a"] * 99
            await until(lambda: used._sweeper is None)
            assert sinks[99].calls == 0, "0 is no limit"


async def test_the_connect_limit_covers_a_name_that_is_not_answered() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hangs(_: str) -> list[str]:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return ["127.0.0.1"]

    async with pooled(hangs) as used:
        sink = await tried(used, Address("ns/a", "http://a.example:80"), connect=0.1)
        assert sink.kind == "NotSent"
        assert "within 0.1 s" in str(sink.outcome)
        release.set()
        await until(lambda: not used.names._asking)


@pytest.mark.parametrize("first", ["refuses", "hangs"])
async def test_another_address_of_the_name_is_tried(first: str) -> None:
    """RFC 8305: one address that is dead costs a quarter of a second, not the request."""
    with bound_only() as closed, black_hole() as hole:
        port = closed if first == "refuses" else hole
        with socket.socket() as good:
            good.bind(("127.0.0.2", port))
            good.listen(64)
            good.setblocking(False)

            async def serve() -> None:
                loop = asyncio.get_running_loop()
                while True:
                    made, _ = await loop.sock_accept(good)
                    with made:
                        await loop.sock_recv(made, 65536)
                        await loop.sock_sendall(made, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

            serving = asyncio.create_task(serve(), name="engine")
            async with pooled(lambda _: ["127.0.0.1", "127.0.0.2"]) as used:
                for _ in range(4):
                    assert (await tried(used, Address("ns/a", f"http://a.example:{port}"))).payload == b"hello"
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_a_names_addresses_share_the_connections() -> None:
    """A headless Service by name: not all of them to the first pod. An answer of the resolver serves many connects."""
    asked = 0

    def look(_: str) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1", "127.0.0.2", "127.0.0.3"]

    with socket.socket() as everywhere:
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen(64)
        port = everywhere.getsockname()[1]
        async with pooled(look) as used:
            legs = [
                used.send(Address("ns/a", f"http://a.example:{port}"), ASKED, Noted(), connect=20.0) for _ in range(30)
            ]
            await until(lambda: len(used.connections) == 30)
            to = [connection._socket.getpeername()[0] for connection in used.connections if connection._socket]
            assert sorted(to.count(f"127.0.0.{n}") for n in (1, 2, 3)) == [10, 10, 10]
            assert asked == 1 < TTL
            for leg in legs:
                leg.abort()


async def test_connect_times_are_told_of_new_connections_alone() -> None:
    """SCA-01 (https://github.com/BerriAI/litellm/pull/19711): time spent waiting for a connection is a metric."""
    told: list[float] = []
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        used.on_connect = told.append
        for _ in range(5):
            await tried(used, engine.address)
        assert len(told) == 1
        assert told[0] >= 0


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_shortage_of_our_own_is_told_apart() -> None:
    """SCA-01: descriptors that run out say nothing of any engine, by address or by name."""
    unreached: list[str] = []
    async with SocketEngine(answering(OK)) as engine, pooled() as used:
        used.on_unreached = unreached.append
        await tried(used, engine.address)
        used.renew("ns/a")
        await until(lambda: engine.open == 0)
        with no_more_descriptors():
            for url in (engine.address.url, f"http://localhost:{engine.port}"):
                error = (await tried(used, Address("ns/a", url))).outcome
                assert isinstance(error, NotSent)
                assert error.own
        assert unreached == []
        assert (await tried(used, engine.address)).kind == "ended"


async def test_idle_connections_give_way_when_sockets_run_out() -> None:
    """No request is lost for a socket that is only kept."""
    async with SocketEngine(answering(OK)) as a, SocketEngine(answering(OK), engine="ns/b") as b, pooled() as used:
        sinks = [Noted() for _ in range(4)]
        for sink in sinks:
            used.send(a.address, ASKED, sink, connect=20.0)
        for sink in sinks:
            await sink.end()
        before = sockets()
        # The engine in this process needs one for itself.
        with no_more_descriptors():
            assert (await tried(used, b.address)).kind == "ended"
        assert sockets() < before


# TLS.


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
            for _ in range(6):
                sink = await tried(used, address)
                assert sink.outcome == "ended", sink.outcome
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
            sink = await tried(used, engine.at("localhost"), ASKED._replace(body=bytes(8 * 2**20)))
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
