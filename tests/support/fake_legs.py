"""A proxy between fakes: a pool whose attempts the test drives, clients that keep what they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from time import monotonic
from typing import Any, cast

from headrace_api.table import RoutingTable, TableRetry
from headrace_router.core.build_view import build_view
from headrace_router.core.selection import Selector
from headrace_router.http1.request_head import RequestHead, parse_request_head
from headrace_router.http1.response_head import parse_response_head
from headrace_router.outbox import ClientTransport
from headrace_router.proxy.answer import Answer
from headrace_router.proxy.exchange import Client, Exchange
from headrace_router.proxy.memory import BodyMemory
from headrace_router.proxy.proxy import Proxy
from headrace_router.proxy.refusals import Refusal
from headrace_router.proxy.waiting import Waiting
from headrace_router.telemetry.accounting import Ledger
from headrace_router.telemetry.metrics import Metrics
from headrace_router.upstream.port import Address, Cut, Leg, Lost, NotSent, Outgoing, Sink, UpstreamPool
from support.router_table import EngineAt, routing_table

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
SSE = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
STREAM = {"model": "m", "stream": True}
GENEROUS = TableRetry(max_attempts=3, percent=100.0, min_per_second=100.0)


class FakeLeg(Leg):
    """One attempt; the test says what comes. ``over``: it ended, or was aborted."""

    def __init__(self, address: Address, outgoing: Outgoing, sink: Sink) -> None:
        self.address = address
        self.outgoing = outgoing
        self.sink = sink
        self.bounded = True
        self.paused = False
        self.aborted = False
        self.over = False
        self.headed = False
        self.chunked = False

    def at_boundary(self) -> bool:
        return self.bounded

    def abort(self) -> None:
        self.aborted = self.aborted or not self.over
        self.over = True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def head(self, status: int = 200, *lines: str) -> None:
        """The head comes."""
        said = [f"HTTP/1.1 {status} Said", *lines, "", ""]
        head = parse_response_head("\r\n".join(said).encode(), bodiless_request=False)
        self.headed, self.chunked = True, head.chunked
        self.sink.head_came(head)

    def body(self, payload: bytes, *, at_boundary: bool = True) -> None:
        """Bytes of the body come."""
        self.bounded = at_boundary or not self.chunked
        self.sink.body_came(b"%x\r\n%b\r\n" % (len(payload), payload) if self.chunked else payload, payload)

    def end(self) -> None:
        """The body is complete."""
        self.over = True
        self.sink.body_ended()

    def fail(self, error: NotSent | Lost | Cut) -> None:
        """It fails."""
        self.over = True
        self.sink.attempt_failed(error)

    def answer(self, body: bytes = b'{"ok":1}', status: int = 200, *lines: str) -> None:
        """A whole answer in one read."""
        self.head(status, "Content-Type: application/json", f"Content-Length: {len(body)}", *lines)
        if body and not self.over:
            self.body(body)
        if not self.over:
            self.end()


class FakePool(UpstreamPool):
    """See UpstreamPool. ``legs``: all attempts so far."""

    def __init__(self) -> None:
        self.legs: list[FakeLeg] = []
        self.renewed: list[str] = []

    def send(self, address: Address, outgoing: Outgoing, sink: Sink, connect: float) -> FakeLeg:
        leg = FakeLeg(address, outgoing, sink)
        self.legs.append(leg)
        return leg

    def renew(self, engine: str) -> None:
        self.renewed.append(engine)

    def retain(self, engines: Collection[str]) -> None: ...

    async def fetch(self, address: Address, target: str, timeout: float) -> int:  # noqa: ASYNC109
        raise NotImplementedError

    async def close(self) -> None: ...


class FakeTransport(ClientTransport):
    """A client's connection. ``unsent``: bytes that the client hasn't taken."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        assert not self.closed, "nothing is written after the end"
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class FakeClient(Client):
    """One request's client. ``done``: how often it was told that the exchange is over."""

    def __init__(self, *, old: bool = False, keep_alive: bool = True) -> None:
        self.transport = FakeTransport()
        self.answer = Answer(self.transport, old=old, keep_alive=keep_alive, bodiless=False)
        self.peer: str | None = "192.0.2.1"
        self.began = monotonic()
        self.done = 0

    def exchange_done(self) -> None:
        self.done += 1

    @property
    def sent(self) -> bytes:
        """All that was written."""
        return b"".join(self.transport.written)

    @property
    def body(self) -> bytes:
        """What stands behind the head."""
        return self.sent.partition(b"\r\n\r\n")[2]


class Bench:
    """A proxy between fakes."""

    def __init__(self, table: RoutingTable, *, memory: int = 2**30, **more: Any) -> None:
        self.selector = Selector(None, rng=lambda: 0.5)
        self.metrics = Metrics()
        self.ledger = Ledger(self.metrics)
        self.pool = FakePool()
        self.waiting = Waiting(self.selector, asyncio.get_running_loop(), lambda _: None)
        self.proxy = Proxy(self.selector, self.pool, self.waiting, self.ledger, BodyMemory(memory), **more)
        self.install(table)

    def install(self, table: RoutingTable) -> None:
        """Apply a table."""
        self.selector.install(build_view([table], self.selector.view))
        self.ledger.prepare(self.selector.view)
        self.waiting.wake()

    def ask(
        self, body: object = None, *lines: str, target: str = "/v1/chat/completions", client: FakeClient | None = None
    ) -> tuple[FakeClient, Exchange | None]:
        """A request as a listener brings it."""
        client = client or FakeClient()
        data = body if isinstance(body, bytes) else json.dumps({"model": "m"} if body is None else body).encode()
        head = request_head(data, *lines, target=target)
        limit = self.proxy.body_limit(head)
        if isinstance(limit, Refusal):
            self.proxy.refuse(head, limit, cast(Any, client))
            return client, None
        assert self.proxy.memory.take(len(data))
        return client, self.proxy.begin(head, data, client)

    @property
    def legs(self) -> list[FakeLeg]:
        """All attempts so far."""
        return self.pool.legs

    @property
    def in_flight(self) -> int:
        """Requests in flight."""
        return sum(count for _, _, count in self.selector.in_flight())

    def counted(self, outcome: str | None = None) -> int:
        """Attempts by outcome."""
        return sum(
            int(self.metrics.requests[labels].value)
            for labels in self.metrics.requests.known()
            if outcome in (None, labels[-1])
        )


def request_head(data: bytes, *lines: str, target: str = "/v1/chat/completions", method: str = "POST") -> RequestHead:
    """The head of a request with that body."""
    said = [f"{method} {target} HTTP/1.1", "Host: r", "Content-Type: application/json", *lines]
    head = parse_request_head("\r\n".join([*said, f"Content-Length: {len(data)}", "", ""]).encode())
    assert isinstance(head, RequestHead)
    return head


def two(**settings: object) -> Bench:
    """Engine a takes everything, b is there for when it doesn't."""
    engines = {"a": EngineAt(("http://a",), weight=1), "b": EngineAt(("http://b",), weight=0)}
    return Bench(routing_table(engines, **{"retry": GENEROUS} | settings))


def settled(bench: Bench) -> bool:
    """Nothing is held any more."""
    return (
        bench.in_flight == 0
        and bench.proxy.memory.held == 0
        and not bench.proxy.running
        and bench.waiting.count == 0
        and all(leg.over for leg in bench.legs)
    )
