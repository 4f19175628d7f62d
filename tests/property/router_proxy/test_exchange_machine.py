"""Whatever comes in whatever order: every request ends once, truly or visibly not, and nothing stays held."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace_api.table import RoutingTable, TableLimits, TableQueue, TableRetry, TableTimeouts
from headrace_router.proxy.exchange import Exchange
from headrace_router.upstream.port import Cut, Lost, NotSent
from support.examples import examples
from support.fake_legs import Bench, FakeClient, FakeLeg
from support.fake_loop import FakeLoop
from support.router_table import EngineAt, routing_table

EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
HEADS = (
    ("Content-Type: text/event-stream", "Transfer-Encoding: chunked"),
    ("Content-Type: application/json", f"Content-Length: {2 * len(EVENT)}"),
    ("Content-Type: application/json", "Transfer-Encoding: chunked"),
    ("Content-Type: text/event-stream",),
)


def table(names: list[str], revision: int) -> RoutingTable:
    return routing_table(
        {name: EngineAt((f"http://{name}",), limit=2) for name in names},
        revision=revision,
        retry=TableRetry(max_attempts=3, percent=100.0, min_per_second=10.0),
        queue=TableQueue(max=2, deadline=3.0),
        limits=TableLimits(body=10_000, retry_body=200),
        timeouts=TableTimeouts(connect=1.0, first_byte=5.0, idle=4.0, send=3.0, unary=12.0),
    )


class ExchangeMachine(RuleBasedStateMachine):
    """Plays pool, clients, clock, tables and shutdown."""

    @initialize()
    def begin(self) -> None:
        self.loop = FakeLoop()
        self.revision = 1
        with self.loop.running():
            self.bench = Bench(table(["a", "b"], 1))
        self.states = {engine.state for engine in self.bench.selector.view.engines.values()}
        self.clients: list[tuple[FakeClient, Exchange]] = []
        self.gone: set[int] = set()
        self.promised: dict[FakeLeg, int] = {}
        self.asked = 0

    @rule(stream=st.booleans(), old=st.booleans(), large=st.booleans())
    def ask(self, stream: bool, old: bool, large: bool) -> None:
        body = {"model": "m", "stream": stream, "x": "y" * (300 if large else 3)}
        with self.loop.running():
            client, exchange = self.bench.ask(body, client=FakeClient(old=old))
        self.asked += 1
        if exchange is not None:
            assert not exchange.over
            self.clients.append((client, exchange))
        else:
            assert client.done == 0
            assert client.answer.complete

    @precondition(lambda self: self.open_legs())
    @rule(data=st.data())
    def leg_event(self, data: st.DataObject) -> None:
        leg = data.draw(st.sampled_from(self.open_legs()))
        with self.loop.running():
            if not leg.headed:
                self._before_head(leg, data)
            else:
                self._after_head(leg, data)

    def _before_head(self, leg: FakeLeg, data: st.DataObject) -> None:
        what = data.draw(st.sampled_from(["head", "head", "head", "refused", "lost", "reused", "own"]))
        if what == "head":
            status = data.draw(st.sampled_from([200, 200, 204, 400, 404, 429, 500, 501, 503]))
            lines = () if status == 204 else data.draw(st.sampled_from(HEADS))
            self.promised[leg] = 2 if "Content-Length" in "".join(lines) else -1
            leg.head(status, *lines)
            if status == 204 and not leg.over:
                leg.end()
        elif what == "refused":
            leg.fail(NotSent("refused"))
        elif what == "own":
            leg.fail(NotSent("no sockets", own=True))
        else:
            leg.fail(Lost("closed", reused=what == "reused"))

    def _after_head(self, leg: FakeLeg, data: st.DataObject) -> None:
        left = self.promised[leg]
        what = data.draw(st.sampled_from(["body", "body", "end", "cut"]))
        if what == "cut":
            leg.fail(Cut("closed"))
        elif left > 0 or (left < 0 and what == "body"):
            self.promised[leg] = left - 1 if left > 0 else left
            leg.body(EVENT, at_boundary=data.draw(st.booleans()))
            if left == 1 and not leg.over:
                leg.end()
        else:
            leg.at_boundary = True
            leg.end()

    @precondition(lambda self: self.open_clients())
    @rule(data=st.data(), what=st.sampled_from(["gone", "paused", "resumed", "closing"]))
    def client_event(self, data: st.DataObject, what: str) -> None:
        client, exchange = data.draw(st.sampled_from(self.open_clients()))
        with self.loop.running():
            if what == "gone":
                self.gone.add(id(client))
                client.transport.closed = True
                exchange.client_gone()
            elif what == "closing":
                self.gone.add(id(client))
                client.transport.closed = True
            elif what == "paused":
                client.transport.unsent = 10
                exchange.client_paused()
            else:
                client.transport.unsent = 0
                exchange.client_resumed()

    @rule(seconds=st.sampled_from([0.0, 0.2, 1.0, 3.5, 6.0]))
    def time_passes(self, seconds: float) -> None:
        with self.loop.running():
            self.loop.advance(seconds)

    @rule(names=st.sampled_from([["a"], ["b"], ["a", "b"], ["c"]]))
    def swap(self, names: list[str]) -> None:
        self.revision += 1
        with self.loop.running():
            self.bench.install(table(names, self.revision))
        self.states |= {engine.state for engine in self.bench.selector.view.engines.values()}

    @rule()
    def shutdown(self) -> None:
        with self.loop.running():
            self.bench.proxy.end_all()
        assert not self.open_clients()

    @invariant()
    def ends_are_single(self) -> None:
        if not hasattr(self, "clients"):
            return
        for client, exchange in self.clients:
            assert client.done == (1 if exchange.over else 0)
            assert client.sent.count(b"HTTP/1.1 ") <= 1
            if exchange.over and not client.answer.complete:
                assert client.transport.closed or id(client) in self.gone
        held = sum(state.in_flight for state in self.states)
        assert 0 <= held <= 2 * len(self.open_clients())
        assert all(endpoint.in_flight >= 0 for state in self.states for endpoint in state.endpoints)

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        with self.loop.running():
            self.bench.proxy.end_all()
            for client, exchange in self.clients:
                if not exchange.over:
                    client.transport.unsent = 0
                    exchange.client_resumed()
            self.loop.advance(60.0)
        for client, exchange in self.clients:
            assert exchange.over
            assert client.done == 1
            if id(client) not in self.gone:
                assert_true_end(client)
        assert sum(state.in_flight for state in self.states) == 0
        assert all(endpoint.in_flight == 0 for state in self.states for endpoint in state.endpoints)
        assert self.bench.proxy.memory.held == 0
        assert not self.bench.proxy.running
        assert self.bench.waiting.count == 0
        assert all(leg.over for leg in self.bench.legs)
        assert self.bench.counted() == len(self.bench.legs), "each attempt is counted once"
        assert self.loop.timers == 0

    def open_legs(self) -> list[FakeLeg]:
        return [leg for leg in self.bench.legs if not leg.over]

    def open_clients(self) -> list[tuple[FakeClient, Exchange]]:
        return [(client, exchange) for client, exchange in self.clients if not exchange.over]


def assert_true_end(client: FakeClient) -> None:
    """A complete answer is complete on the wire, and one that isn't can't be taken for it."""
    head, _, body = client.sent.partition(b"\r\n\r\n")
    if not client.answer.complete:
        assert client.transport.closed
    if not head:
        return
    if b"Transfer-Encoding: chunked" in head:
        assert body.endswith(b"0\r\n\r\n") is client.answer.complete
        if client.answer.complete:
            assert re.fullmatch(rb"(?:[0-9a-f]+\r\n[^\0]*?\r\n)*?0\r\n\r\n", body, re.DOTALL)
    elif length := re.search(rb"Content-Length: (\d+)", head):
        assert (len(body) == int(length[1])) is client.answer.complete
    elif not head.startswith(b"HTTP/1.1 204"):
        assert client.transport.aborted or client.answer.complete or b'"error"' in body


TestExchanges: Any = ExchangeMachine.TestCase
TestExchanges.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
