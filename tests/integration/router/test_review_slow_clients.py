"""Slow clients that do take their answers: ``send`` is how long one may take nothing at all."""

import asyncio
import contextlib
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from headrace_router.server.access_files import AccessFiles
from support.certificates import Authority
from support.fake_engine import Exchange, FakeEngine
from support.raw_client import post
from support.router_process import in_flight, reads, router_in_loop, until
from support.router_table import PATIENT, routing_table

SEND = 1.0
BODY = 32 * 2**20
# Seconds, at 24 KiB in 50 ms: the kernels' buffers hold far more, so that the transport's own stands still meanwhile.
SLOWLY = 4.0


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
async def test_one_that_takes_a_little_all_the_time_is_not_cut(tmp_path: Path, tls: bool) -> None:
    async def large(exchange: Exchange) -> None:
        with contextlib.suppress(ConnectionError):
            await exchange.answer(b"x" * BODY)

    authority = Authority()
    sock = socket.socket()
    # With large buffers a machine itself tells only now and then what it has taken.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    access = AccessFiles(tls=authority.issue("127.0.0.1").write(tmp_path / "tls")) if tls else AccessFiles()
    async with FakeEngine(large) as engine:
        table = routing_table({"a": engine.url}, timeouts=msgspec.structs.replace(PATIENT, send=SEND))
        async with router_in_loop(tmp_path / "t", table, access=access) as router:
            sock.connect(("127.0.0.1", urlsplit(router.address).port))
            reader, writer = await asyncio.open_connection(
                sock=sock,
                ssl=authority.client() if tls else None,
                server_hostname="127.0.0.1" if tls else None,
                limit=2**14,
            )
            try:
                writer.write(post({"model": "m"}))
                end = time.monotonic() + SLOWLY
                while time.monotonic() < end:
                    assert await reader.read(24 * 1024)
                    await asyncio.sleep(0.05)
                assert in_flight(router) == 1
                writer.transport.pause_reading()
                # One that takes nothing any more still is.
                await until(lambda: in_flight(router) == 0)
                await reads(1, router.admin_address, "headrace_requests_total", outcome="client_gone")
            finally:
                writer.transport.abort()
