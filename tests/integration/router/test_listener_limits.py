"""The clients' listener alone: what it refuses, and how long and how much it waits for."""

import asyncio
import time

import pytest

from headrace_router.listener.limits import Limits
from support.raw_client import RawClient, ask, post, read_answer
from support.router_process import until
from support.stub_proxy import BOTH, CHUNKED, StubProxy, listening

# A proxy of the test's own behind the listener.
pytestmark = pytest.mark.stand_ins

HEAD = b"POST /now HTTP/1.1\r\nHost: r\r\n"


@BOTH
async def test_continue_is_said_where_the_body_is_wanted_and_only_there(hot: bool) -> None:
    """RFC 9110 10.1.1: never after a refusal, never when the body is there already."""
    expect = "Expect: 100-continue"
    proxy = StubProxy(most=100)
    async with listening(proxy, hot=hot) as (url, _):
        async with RawClient(url) as client:
            data = post(b"body", "/now", expect)
            await client.send(data[:-4])
            await client.until(b"HTTP/1.1 100 Continue\r\n\r\n")
            client.received = b""
            await client.send(b"body")
            assert (await client.answer()).body == b"body"
            await client.send(data)
            assert (await client.answer()).body == b"body"
        for refused in (post(b"body", "/unknown", expect)[:-4], post(b"b" * 200, "/now", expect)[:-200]):
            async with RawClient(url) as client:
                await client.send(refused)
                raw = await client.to_end()
                assert raw.startswith((b"HTTP/1.1 404", b"HTTP/1.1 413"))
                assert b"Connection: close" in raw


@BOTH
@pytest.mark.parametrize("kept", [True, False])
async def test_a_refusal_that_waits_for_no_body_keeps_the_connection_where_the_rest_is_small(
    hot: bool, kept: bool
) -> None:
    """Common clients send head and body in two writes: a wrong path would cost each of them its connection."""
    data = post(b"x" * (60_000 if kept else 70_000), "/unknown")
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, _), RawClient(url) as client:
        await client.send(data[:200])
        answer = await client.answer()
        assert answer.status == 404
        assert answer.header("Connection") == (None if kept else "close")
        if kept:
            await client.send(data[200:300])
            await client.send(data[300:] + post(b"next", "/now"))
            assert (await client.answer()).body == b"next"


@BOTH
async def test_a_refusal_is_read_by_a_client_that_is_still_sending(hot: bool) -> None:
    """Closing with bytes unread would reset the connection under the answer."""
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, listener):
        for data in (post(b"x" * 3_000_000, "/unknown"), b"\x00" + b"y" * 3_000_000, CHUNKED[:-12] + b"zz" * 10**6):
            async with RawClient(url) as client:
                sending = asyncio.create_task(client.send(data))
                raw = await client.to_end()
                await sending
                assert raw.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.1 431")), raw
                assert not client.reset
        await until(lambda: not listener.connections)
        assert proxy.requests == []


FAST = Limits(head_seconds=0.2, first_request=0.4, idle=0.3, body_idle=0.2, lingering=0.2)


@pytest.mark.parametrize(
    ("sent", "starts"),
    [
        (b"", b""),
        (b"POST /now HTTP/1.1\r\nHost: r\r\n", b"HTTP/1.1 408"),
        (post(b"abc", "/now")[:-1], b"HTTP/1.1 408"),
        (CHUNKED[:-12], b"HTTP/1.1 408"),
        (post(b"", "/now"), b"HTTP/1.1 200"),
        (post(b"", "/now") + b"\r\n", b"HTTP/1.1 200"),
    ],
    ids=["nothing", "head", "body", "chunks", "idle", "idle after an empty line"],
)
async def test_a_connection_that_keeps_its_socket_for_nothing_is_closed(sent: bytes, starts: bytes) -> None:
    proxy = StubProxy()
    async with listening(proxy, FAST) as (url, listener), RawClient(url) as client:
        await client.send(sent)
        raw = await client.to_end()
        assert raw.startswith(starts)
        assert bool(raw) == bool(starts)
        await until(lambda: not listener.connections)


@pytest.mark.parametrize("first", [b"", post(b"", "/now")], ids=["new", "used"])
async def test_dripped_heads_are_ended_by_time_from_their_first_byte(first: bytes) -> None:
    """Slow loris: each byte comes well before any idle limit."""
    proxy = StubProxy()
    async with listening(proxy, Limits(head_seconds=0.4)) as (url, _), RawClient(url) as client:
        if first:
            await client.send(first)
            await client.answer()
        began = time.monotonic()
        while not client.reader.at_eof() and time.monotonic() - began < 20:
            await client.send(b"P")
            await asyncio.sleep(0.02)
            if client.reader._buffer:  # type: ignore[attr-defined]
                break
        assert (await client.to_end()).startswith(b"HTTP/1.1 408")


async def test_a_body_that_comes_slowly_but_comes_is_taken() -> None:
    proxy = StubProxy()
    async with listening(proxy, Limits(body_idle=0.5, body_rate=1)) as (url, _), RawClient(url) as client:
        data = post(b"abcdefgh", "/now")
        await client.send(data[:-8])
        for byte in b"abcdefgh":
            await asyncio.sleep(0.1)
            await client.send(bytes([byte]))
        assert (await client.answer()).body == b"abcdefgh"


@pytest.mark.parametrize(
    ("data", "status", "code", "named"),
    [
        (HEAD + b"X: " + b"y" * 5000, 431, "header_too_large", "more than 4096 bytes"),
        (HEAD + b"X: " + b"y" * 5000 + b"\r\n\r\n", 431, "header_too_large", "more than 4096 bytes"),
        (HEAD + b"X: y\r\n" * 30 + b"\r\n", 431, "too_many_headers", "more than 20 header lines"),
        (HEAD + b"X: y\r\n" * 120 + b"\r\n", 431, "too_many_headers", "more than 100 header lines"),
        (HEAD + b"X: y\r\n" * 19 + b"X: " + b"y" * 5000 + b"\r\n\r\n", 431, "header_too_large", "4096 bytes"),
        (b"POST /now HTTP/1.1\nHost: r\n\n", 400, "bad_request", "CRLF"),
        (b"POST /now HTTP/1.1\r\nHost: r\n\r", 400, "bad_request", "CRLF"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, "bad_request", "CRLF"),
        (b"GET / HTTP/3.9\r\n\r\n", 505, "version_not_supported", "HTTP/1.1"),
    ],
    ids=["part", "whole", "lines", "far too many", "both", "bare LF", "one bare LF", "TLS", "version"],
)
async def test_heads_that_are_none_are_refused_at_once(data: bytes, status: int, code: str, named: str) -> None:
    proxy = StubProxy()
    limits = Limits(head_bytes=4096, head_lines=20)
    async with listening(proxy, limits) as (url, _), RawClient(url) as client:
        await client.send(data)
        answer = read_answer(await client.to_end())
        assert (answer.status, answer.code) == (status, code)
        error = answer.json()["error"]
        assert isinstance(error, dict)
        assert named in error["message"]
        assert proxy.requests == []


async def test_connections_beyond_the_bound_are_told_so() -> None:
    proxy = StubProxy()
    async with listening(proxy, Limits(connections=2)) as (url, listener):
        async with RawClient(url) as one, RawClient(url) as two:
            for client in (one, two):
                await client.send(post(b"x", "/held"))
            await until(lambda: len(proxy.held) == 2)
            refused = await ask(url, post(b"x", "/now"))
            assert (refused.status, refused.code) == (503, "too_many_connections")
            for exchange in proxy.held:
                exchange.finish()
            for client in (one, two):
                assert (await client.answer()).status == 200
                await client.send(post(b"x", "/now"))
                assert (await client.answer()).status == 200
        await until(lambda: not listener.connections)
        assert (await ask(url, post(b"x", "/now"))).status == 200


@BOTH
async def test_bodies_have_bounds_alone_and_together(hot: bool) -> None:
    proxy = StubProxy(most=1000, memory=1500)
    chunks = CHUNKED.partition(b"4\r\n")[0] + b"3e9\r\n" + b"x" * 1001
    async with listening(proxy, hot=hot) as (url, _), RawClient(url) as slow:
        assert (await ask(url, post(b"x" * 1001, "/now"))).code == "body_too_large"
        assert (await ask(url, chunks)).code == "body_too_large"
        await slow.send(post(b"x" * 900, "/now")[:-1])
        await until(lambda: proxy.memory.held == 899)
        assert (await ask(url, post(b"x" * 700, "/now"))).status == 503
        assert (await ask(url, post(b"x" * 700, "/now")[:-1])).status == 503
        assert (await ask(url, post(b"x" * 600, "/now"))).status == 200
        await slow.send(b"x")
        assert (await slow.answer()).status == 200
        assert proxy.memory.held == 0
