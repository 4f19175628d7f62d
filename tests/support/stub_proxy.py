"""A proxy for tests of the listener alone: it answers by path, and remembers what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from headrace_router.http1.request_head import RequestHead
from headrace_router.listener.limits import Limits
from headrace_router.listener.listener import Listener
from headrace_router.proxy.memory import BodyMemory
from headrace_router.proxy.refusals import Refusal

BOTH = pytest.mark.parametrize("hot", [True, False], ids=["hot", "aiohttp"])  # routes to the proxy
CHUNKED = b"POST /moment HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"4\r\nabcd\r\n3;x=1\r\nefg\r\n0\r\nT: 1\r\n\r\n"
UNKNOWN = Refusal(404, "unknown_path", "no such path", final=True)
FAULT = Refusal(413, "body_too_large", "too large", final=True)


class StubExchange:
    """An exchange that ends when the test says so."""

    def __init__(self, client: Any, body: bytes) -> None:
        self.client = client
        self.body = body
        self.events: list[str] = []

    def client_gone(self) -> None:
        self.events.append("gone")

    def client_paused(self) -> None:
        self.events.append("paused")

    def client_resumed(self) -> None:
        self.events.append("resumed")

    def finish(self) -> None:
        self.client.answer.whole(200, b"OK", b"X-Is: answer\r\n", self.body)
        self.client.exchange_done()


class StubProxy:
    """``/now``: answered in begin; ``/held``: by the test; ``/unknown``: refused by its head; else: in a moment."""

    def __init__(self, *, most: int = 2**20, memory: int = 2**30) -> None:
        self.memory = BodyMemory(memory)
        self.draining = False
        self.most = most
        self.requests: list[tuple[str, str, bytes]] = []
        self.refused: list[str] = []
        self.held: list[StubExchange] = []

    def body_limit(self, head: RequestHead) -> int | Refusal:
        if head.target == "/unknown":
            return UNKNOWN
        return FAULT if (head.length or 0) > self.most else self.most

    def begin(self, head: RequestHead, body: bytes, client: Any) -> StubExchange | None:
        self.memory.give(len(body))
        self.requests.append((head.method, head.target, body))
        if head.target == "/now":
            client.answer.whole(200, b"OK", b"X-Is: now\r\n", body)
            return None
        exchange = StubExchange(client, body)
        if head.target == "/held":
            self.held.append(exchange)
        else:
            asyncio.get_running_loop().call_soon(self._finish, exchange)
        return exchange

    @staticmethod
    def _finish(exchange: StubExchange) -> None:
        if not exchange.events:
            exchange.finish()

    def refuse(self, head: RequestHead | None, refusal: Refusal, client: Any) -> None:
        self.refused.append(refusal.code)
        client.answer.whole(
            refusal.status, refusal.phrase, b"Content-Type: application/json\r\n", refusal.body(anthropic=False)
        )


@asynccontextmanager
async def listening(
    proxy: StubProxy, limits: Limits | None = None, *, hot: bool = True
) -> AsyncIterator[tuple[str, Listener]]:
    """A listener before a stub, and its address."""
    listener = Listener(cast(Any, proxy), limits, hot=hot)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", listener
    finally:
        server.close()
        await listener.shutdown(0.5)
        # Nothing is left of any message, on neither side.
        assert proxy.memory.held == 0
        assert not listener.side.connections
        assert not listener.connections
