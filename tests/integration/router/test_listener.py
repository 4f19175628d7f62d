"""The clients' listener alone, before a proxy that answers by path: messages, leaving, the drain."""

import asyncio
import itertools

import pytest

from headrace_router.listener.reading import MOST_AT_ONCE
from support.raw_client import RawClient, post
from support.router_process import until
from support.stub_proxy import BOTH, CHUNKED, StubProxy, listening

# A proxy of the test's own behind the listener.
pytestmark = pytest.mark.stand_ins


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
