"""Clients that ask and ask and take no answer: what the router says itself is held up too, and they are let go of."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from headrace_router.listener import client_connection
from headrace_router.listener.client_connection import ClientConnection
from headrace_router.listener.limits import Limits
from headrace_router.server.access_files import AccessFiles
from headrace_router.server.server import Router
from support.certificates import Authority
from support.fake_engine import FakeEngine, answers
from support.raw_client import RawClient, post
from support.router_process import router_in_loop, until
from support.router_table import routing_table

MODELS = 300
PAGE = b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n"
# Of what was begun when the client fell behind.
ONE_ANSWER = 128 * 1024


@asynccontextmanager
async def router(path: Path, **settings: object) -> AsyncIterator[Router]:
    """A router whose page of models is large."""
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        (model,) = table.models
        names = ("m", *(f"{number:03}" + "m" * 150 for number in range(MODELS)))
        many = msgspec.structs.replace(table, models=tuple(msgspec.structs.replace(model, model=n) for n in names))
        async with router_in_loop(path, many, **settings) as made:
            yield made


def only(router: Router) -> ClientConnection:
    (connection,) = router._listener.connections
    return connection


async def ask_until_held_up(router: Router, client: socket.socket, asked: bytes) -> ClientConnection:
    """Send ``asked`` again and again without reading, until the router has written ahead what it may; then more."""
    loop = asyncio.get_running_loop()
    await until(lambda: router._listener.connections)
    connection = only(router)
    while not connection.writing_paused:
        await loop.sock_sendall(client, asked * 4)
        await asyncio.sleep(0.001)
    written = connection.transport.get_write_buffer_size()
    with contextlib.suppress(BlockingIOError):
        for _ in range(1000):
            client.send(asked * 4)
            await asyncio.sleep(0)
    assert connection.transport.get_write_buffer_size() <= written + ONE_ANSWER
    return connection


def deaf(router: Router) -> socket.socket:
    """A client that never reads, with small buffers so that this shows soon."""
    client = socket.socket()
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        client.setsockopt(socket.SOL_SOCKET, buffer, 4096)
    host, port = router.address.removeprefix("http://").split(":")
    client.connect((host, int(port)))
    client.setblocking(False)
    return client


@pytest.mark.parametrize(
    "asked", [PAGE, b"GET /nowhere HTTP/1.1\r\nHost: r\r\n\r\n", post(b'{"model":"none"}')], ids=["page", "path", "hot"]
)
async def test_a_client_that_takes_no_answers_is_asked_for_no_more_requests(tmp_path: Path, asked: bytes) -> None:
    """The kind of CVE-2013-4450 (pipelined requests, their answers unread): memory is bounded."""
    async with router(tmp_path / "t") as made:
        with deaf(made) as client:
            assert not (await ask_until_held_up(made, client, asked)).transport.is_closing()


async def test_it_is_served_on_when_it_takes_them(tmp_path: Path) -> None:
    asked = 300
    async with router(tmp_path / "t") as made, RawClient(made.address) as client:
        client.writer.transport.pause_reading()
        client.writer.write(PAGE * asked)
        await until(lambda: made._listener.connections and only(made).writing_paused)
        client.writer.transport.resume_reading()
        answered = 0
        async with asyncio.timeout(60):
            while answered < asked:
                head = await client.reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                await client.reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
                answered += 1
        await client.send(post({"model": "m"}))
        await client.until(b"completion_tokens")


async def test_the_rest_of_a_body_that_nobody_wants_is_read_when_it_takes_them(tmp_path: Path) -> None:
    async with router(tmp_path / "t", limits=Limits(lingering=60.0)) as made:
        with deaf(made) as client:
            loop = asyncio.get_running_loop()
            await until(lambda: made._listener.connections)
            connection = only(made)
            refused = b"POST /nowhere HTTP/1.1\r\nHost: r\r\nContent-Length: 4\r\n\r\n"
            while not connection.writing_paused:
                served = connection.served
                # Large ones until the kernel is full, then one whose body comes later.
                large = not connection.transport.get_write_buffer_size()
                await loop.sock_sendall(client, PAGE if large else refused)
                while connection.served == served:  # noqa: ASYNC110 - a turn is what is waited for
                    await asyncio.sleep(0)
                if large:
                    await asyncio.sleep(0.001)
                elif not connection.writing_paused:
                    await loop.sock_sendall(client, b"body")
            await loop.sock_sendall(client, b"body" + post({"model": "m"}))
            received = b""
            async with asyncio.timeout(30):
                while b"completion_tokens" not in received:
                    received = received[-100:] + await loop.sock_recv(client, 65536)


@pytest.mark.stand_ins
async def test_it_is_cut_when_it_takes_nothing_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "FLUSHING", 0.5)
    async with router(tmp_path / "t", limits=Limits(body_idle=1.0)) as made:
        with deaf(made) as client:
            await ask_until_held_up(made, client, PAGE)
            await until(lambda: not made._listener.connections)


@pytest.mark.stand_ins
async def test_one_that_leaves_a_little_untaken_is_not_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waits until what was written has left: without a limit of its own that is never."""
    monkeypatch.setattr(client_connection, "FLUSHING", 0.5)
    async with router(tmp_path / "t", limits=Limits(idle=1.0)) as made:
        with deaf(made) as client:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"GET /nowhere HTTP/1.1\r\nHost: r\r\n\r\n")
            await until(lambda: made._listener.connections)
            connection = only(made)
            while not connection.transport.get_write_buffer_size():
                await loop.sock_sendall(client, b"GET /nowhere HTTP/1.1\r\nHost: r\r\n\r\n" * 4)
                await asyncio.sleep(0)
            assert not connection.writing_paused
            await until(lambda: not made._listener.connections)


async def test_over_tls_too(tmp_path: Path) -> None:
    authority = Authority()
    tls = authority.issue("127.0.0.1").write(tmp_path / "tls")
    async with (
        router(tmp_path / "t", access=AccessFiles(tls=tls)) as made,
        RawClient(made.address, authority.client()) as client,
    ):
        client.writer.transport.pause_reading()
        client.writer.write(PAGE * 400)
        await until(lambda: made._listener.connections and only(made).writing_paused)
        written = only(made).transport.get_write_buffer_size()
        # No more than without TLS, whose own bound is 512 KiB.
        assert written < client_connection.WRITTEN_AHEAD + ONE_ANSWER
        client.writer.write(PAGE * 400)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert only(made).transport.get_write_buffer_size() <= written
