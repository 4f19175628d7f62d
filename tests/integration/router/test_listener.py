"""The clients' listener alone, before a proxy that answers by path: messages, bounds, leaving, the drain."""

import asyncio
import itertools
import time

import pytest

from headrace_router.listener.limits import Limits
from headrace_router.listener.reading import MOST_AT_ONCE
from support.raw_client import RawClient, ask, post
from support.router_process import until
from support.stub_proxy import StubProxy, listening

# A proxy of the test's own behind the listener.
pytestmark = pytest.mark.stand_ins

BOTH = pytest.mark.parametrize("hot", [True, False], ids=["hot", "aiohttp"])
CHUNKED = b"POST /moment HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"4\r\nabcd\r\n3;x=1\r\nefg\r\n0\r\nT: 1\r\n\r\n"


def count(raw: bytes) -> int:
    return raw.count(b"HTTP/1.1 200 OK\r\n")


@BOTH
@pytest.mark.parametrize("request_", [post(b"abcdefg", "/moment"), CHUNKED], ids=["length", "chunked"])
async def test_a_message_is_the_same_however_it_is_cut(request_: bytes, hot: bool) -> None:
    """Each place between two reads; another request right behind it comes to the same connection whole."""
    behind = post(b"next", "/now")
    data = request_ + behind
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, listener):
        for cut in range(1, len(data)):
            async with RawClient(url) as client:
                await client.send(data[:cut])
                # The listener has read the first part before the second leaves.
                await asyncio.sleep(0)
                await client.send(data[cut:])
                while count(client.received) < 2:
                    client.received += await client.reader.read(65536)
            assert proxy.requests[-2:] == [("POST", "/moment", b"abcdefg"), ("POST", "/now", b"next")], cut
        await until(lambda: not listener.connections)


@BOTH
async def test_pipelined_requests_are_answered_in_order(hot: bool) -> None:
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, _), RawClient(url) as client:
        kinds = ("/now", "/moment", "/unknown", "/now", "/now", "/moment")
        await client.send(b"".join(post(b"%d" % n, path) for n, path in enumerate(kinds)))
        raw = await client.until(b"\r\n\r\n5")
        assert [raw.find(b"\r\n\r\n%d" % n) for n in (0, 1, 3, 4, 5)] == sorted(
            raw.find(b"\r\n\r\n%d" % n) for n in (0, 1, 3, 4, 5)
        )
        assert raw.count(b"HTTP/1.1 404") == 1
        assert len(proxy.requests) == 5


@pytest.mark.parametrize("path", ["/now", "/unknown"])
async def test_thousands_of_pipelined_requests_need_no_stack_and_leave_others_their_turn(path: str) -> None:
    """What is answered at once takes no loop turn each, but no more than some of them in one."""
    turns: list[int] = []

    def count_turns() -> None:
        turns.append(len(proxy.requests) + len(proxy.refused))
        if not done.is_set():
            asyncio.get_running_loop().call_soon(count_turns)

    done = asyncio.Event()
    proxy = StubProxy()
    async with listening(proxy) as (url, listener), RawClient(url) as client:
        count_turns()
        await client.send(post(b"x", path) * 3000 + post(b"end", "/now"))
        await client.until(b"\r\n\r\nend")
        done.set()
        assert len(proxy.requests) + len(proxy.refused) == 3001
        assert max(after - before for before, after in itertools.pairwise(turns)) <= 2 * MOST_AT_ONCE
        assert not any(connection.busy for connection in listener.connections)


async def test_the_hot_route_makes_no_task() -> None:
    proxy = StubProxy()
    async with listening(proxy) as (url, _), RawClient(url) as client:
        before = len(asyncio.all_tasks())
        for body in (b"x", b"y" * 300_000):
            await client.send(post(body, "/held"))
            await until(lambda: proxy.held)
            assert len(asyncio.all_tasks()) == before
            proxy.held.pop().finish()
            assert (await client.answer()).body == body


@BOTH
@pytest.mark.parametrize("way", ["eof", "close", "reset"])
async def test_a_client_that_leaves_ends_its_exchange(way: str, hot: bool) -> None:
    """HAS-04's kind: whoever leaves is known to have left at once, reading is never paused."""
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, listener), RawClient(url) as client:
        await client.send(post(b"x", "/held"))
        await until(lambda: proxy.held)
        if way == "eof":
            client.writer.write_eof()
        elif way == "close":
            client.writer.close()
        else:
            client.writer.transport.abort()
        await until(lambda: proxy.held[0].events)
        assert proxy.held[0].events == ["gone"]
        await until(lambda: not listener.connections)


@pytest.mark.parametrize("part", [b"", b"POST /now HT", post(b"x" * 50, "/now")[:-10], CHUNKED[:-12]])
async def test_leaving_before_a_request_is_whole_leaves_nothing(part: bytes) -> None:
    proxy = StubProxy()
    async with listening(proxy) as (url, listener):
        async with RawClient(url) as client:
            await client.send(part)
            await until(lambda: listener.connections)
            await asyncio.sleep(0.01)
        await until(lambda: not listener.connections)
        assert proxy.requests == []
        assert proxy.memory.held == 0


async def test_back_pressure_reaches_the_exchange() -> None:
    proxy = StubProxy()
    async with listening(proxy) as (url, _), RawClient(url) as client:
        await client.send(post(b"x", "/held"))
        await until(lambda: proxy.held)
        exchange = proxy.held[0]
        exchange.client.answer.begin(200, b"OK", [], 32 * 2**20)
        for _ in range(32):
            exchange.client.answer.put(b"", b"z" * 2**20)
        await until(lambda: exchange.events == ["paused"])
        async with asyncio.timeout(20):
            while exchange.events != ["paused", "resumed"]:
                await client.reader.read(2**20)
        exchange.client.answer.end()
        exchange.client.exchange_done()


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
    ("data", "status"),
    [
        (b"POST /now HTTP/1.1\r\nHost: r\r\nX: " + b"y" * 5000, b"431"),
        (b"POST /now HTTP/1.1\r\nHost: r\r\nX: " + b"y" * 5000 + b"\r\n\r\n", b"431"),
        (b"POST /now HTTP/1.1\r\nHost: r\r\n" + b"X: y\r\n" * 30 + b"\r\n", b"431"),
        (b"POST /now HTTP/1.1\nHost: r\n\n", b"400"),
        (b"POST /now HTTP/1.1\r\nHost: r\n\r", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"400"),
        (b"GET / HTTP/3.9\r\n\r\n", b"505"),
    ],
    ids=["part", "whole", "lines", "bare LF", "one bare LF", "TLS", "version"],
)
async def test_heads_that_are_none_are_refused_at_once(data: bytes, status: bytes) -> None:
    proxy = StubProxy()
    limits = Limits(head_bytes=4096, head_lines=20)
    async with listening(proxy, limits) as (url, _), RawClient(url) as client:
        await client.send(data)
        raw = await client.to_end()
        assert raw.startswith(b"HTTP/1.1 " + status)
        assert raw.count(b"HTTP/1.1 " + status) == 1
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


@BOTH
async def test_too_much_behind_a_request_closes_after_its_answer(hot: bool) -> None:
    """router.md, Streams: more than 64 KiB pipelined: close after this response, which says so."""
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, _), RawClient(url) as client:
        await client.send(post(b"first", "/held"))
        await until(lambda: proxy.held)
        await client.send(post(b"y" * 100_000, "/now") * 3)
        await asyncio.sleep(0.05)
        proxy.held[0].finish()
        raw = await client.to_end()
        assert not client.reset
        assert count(raw) == 1
        assert b"Connection: close" in raw
        assert len(proxy.requests) == 1


@BOTH
async def test_a_last_answer_survives_what_its_client_sent_behind_it(hot: bool) -> None:
    """RFC 9112 9.6: closed with input unread, the connection is reset, and the answer lost that was on its way."""
    proxy = StubProxy()
    async with listening(proxy, hot=hot) as (url, listener):
        for number in range(50):
            async with RawClient(url) as client:
                await client.send(post(b"%d" % number, "/now", "Connection: close") + b"POST /now HT")
                await client.send(post(b"never", "/now") * 500)
                raw = await client.to_end()
                assert raw.endswith(b"\r\n\r\n%d" % number)
                assert not client.reset
        assert len(proxy.requests) == 50
        await until(lambda: not listener.connections)


async def test_old_clients_are_kept_only_if_they_ask() -> None:
    proxy = StubProxy()
    async with listening(proxy) as (url, _):
        for headers, kept in (((), False), (("Connection: keep-alive",), True)):
            async with RawClient(url) as client:
                await client.send(post(b"x", "/now", *headers, version="1.0"))
                answer = await client.answer()
                assert answer.header("Connection") == ("keep-alive" if kept else "close")
                assert answer.body == b"x"
                if not kept:
                    assert await client.reader.read() == b""


async def test_head_has_no_body() -> None:
    proxy = StubProxy()
    async with listening(proxy) as (url, _), RawClient(url) as client:
        await client.send(b"HEAD /now HTTP/1.1\r\nHost: r\r\n\r\n")
        raw = await client.until(b"\r\n\r\n")
        assert raw.endswith(b"Content-Length: 0\r\n\r\n")
        await client.send(post(b"x", "/now"))
        await client.until(b"\r\n\r\nx")


async def test_offers_of_other_protocols_are_ignored() -> None:
    """PRO-04 (https://github.com/golang/go/issues/16875): the body arrives, and the request behind it too."""
    proxy = StubProxy()
    async with listening(proxy) as (url, _), RawClient(url) as client:
        for protocol in ("h2c", "websocket", "tcp"):
            offer = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMAAABk")
            await client.send(post(b"one", "/now", *offer) + post(b"two", "/now"))
            await client.until(b"\r\n\r\ntwo")
            client.received = b""
        assert [body for _, _, body in proxy.requests] == [b"one", b"two"] * 3


async def test_a_drain_closes_what_is_idle_and_serves_what_has_begun() -> None:
    """SHU-01 (https://github.com/mnfst/llm-gateway/pull/2326): no request is lost whose first bytes have come."""
    proxy = StubProxy()
    async with (
        listening(proxy) as (url, listener),
        RawClient(url) as idle,
        RawClient(url) as running,
        RawClient(url) as reading,
        RawClient(url) as new,
        RawClient(url) as unread,
    ):
        for client in (idle, unread):
            await client.send(post(b"x", "/now"))
            await client.answer()
        await running.send(post(b"x", "/held"))
        await reading.send(post(b"x", "/now")[:30])
        await until(lambda: proxy.held and sum(connection.busy for connection in listener.connections) == 2)
        await until(lambda: len(listener.connections) == 5)
        # In the kernel when the listener looks: nothing awaits between.
        unread.writer.get_extra_info("socket")
        unread.writer.write(post(b"late", "/now"))
        proxy.draining = True
        listener.drain()
        listener.close_idle()
        assert listener.busy
        assert (await unread.answer()).header("Connection") == "close"
        assert await idle.to_end() == b""
        proxy.held[0].finish()
        assert (await running.answer()).header("Connection") == "close"
        await reading.send(post(b"x", "/now")[30:])
        assert (await reading.answer()).header("Connection") == "close"
        await asyncio.wait_for(listener.ended(), 20)
        await new.send(post(b"x", "/now"))
        assert (await new.answer()).header("Connection") == "close"
        for client in (running, reading, new, unread):
            assert await client.to_end() == b""
        await until(lambda: not listener.connections)
