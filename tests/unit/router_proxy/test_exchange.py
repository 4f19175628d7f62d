"""One request as callbacks, between a pool and a client that the test plays."""

import asyncio
import json
import logging

import msgspec
import pytest

from headrace_api.table import TableLimits, TableQueue, TableRetry, TableTimeouts, TableTls
from headrace_router.proxy.clock import SWEEP
from headrace_router.telemetry.events import Event
from headrace_router.upstream.port import Cut, Lost, NotSent
from support.fake_legs import Bench, FakeClient
from support.router_process import until
from support.router_table import EngineAt, routing_table

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
SSE = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
STREAM = {"model": "m", "stream": True}
GENEROUS = TableRetry(max_attempts=3, percent=100.0, min_per_second=100.0)


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


async def test_a_unary_answer_is_one_write_and_counted_once() -> None:
    bench = two()
    client, exchange = bench.ask(None, "x-request-id: mine")
    assert exchange is not None
    assert bench.in_flight == 1
    bench.legs[0].answer(b'{"ok":1}')
    assert len(client.transport.written) == 1
    assert client.sent.startswith(b"HTTP/1.1 200 Said\r\nContent-Type: application/json\r\nx-headrace-engine: a\r\n")
    assert b"\r\nx-request-id: mine\r\nContent-Length: 8\r\n\r\n" in client.sent
    assert client.body == b'{"ok":1}'
    assert (client.answer.complete, client.answer.keep_alive, client.done) == (True, True, 1)
    assert (bench.counted(), bench.counted("ok")) == (1, 1)
    assert settled(bench)


async def test_the_head_is_held_until_the_first_body_byte_and_leaves_with_it() -> None:
    """router.md, Timeouts: engines send the head at once and the first token later; until then a retry is possible."""
    bench = two()
    client, _ = bench.ask(STREAM)
    bench.legs[0].head(200, *SSE)
    assert client.sent == b""
    bench.legs[0].fail(Cut("closed"))
    assert [leg.address.engine for leg in bench.legs] == ["inference/a", "inference/b"]
    bench.legs[1].head(200, *SSE)
    bench.legs[1].body(EVENT)
    assert len(client.transport.written) == 1
    assert b"x-headrace-engine: b\r\nx-headrace-reason: retry" in client.sent
    assert b"x-headrace-attempts: 2" in client.sent
    bench.legs[1].end()
    assert client.body == b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)
    assert settled(bench)


async def test_chunks_pass_as_they_came_and_comments_with_them() -> None:
    """router.md, Streams: bytes pass unchanged, chunk boundaries too."""
    bench = two()
    client, _ = bench.ask(STREAM)
    leg = bench.legs[0]
    leg.head(200, *SSE)
    raw = b"00A\r\n: comment \r\n"
    leg.sink.body_came(raw, b": comment ")
    leg.body(EVENT)
    leg.end()
    assert client.body == raw + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)


async def test_an_http_1_0_client_gets_the_payload_and_the_connections_end() -> None:
    """PRO-02 (https://github.com/aio-libs/aiohttp/issues/1828)."""
    bench = two()
    client, _ = bench.ask(STREAM, client=FakeClient(old=True))
    leg = bench.legs[0]
    leg.head(200, *SSE)
    leg.body(EVENT)
    leg.end()
    assert client.body == EVENT
    assert b"Transfer-Encoding" not in client.sent
    assert (client.answer.complete, client.answer.keep_alive) == (True, False)


@pytest.mark.parametrize(("at_boundary", "told"), [(True, True), (False, False)])
async def test_a_cut_stream_is_told_only_where_a_chunk_ends(at_boundary: bool, told: bool) -> None:
    """STR-01 (https://github.com/ai-dynamo/dynamo/pull/8430): one error event at a chunk boundary, else an abort; never
    a clean end."""
    bench = two()
    client, _ = bench.ask(STREAM)
    leg = bench.legs[0]
    leg.head(200, *SSE)
    leg.body(EVENT, at_boundary=at_boundary)
    leg.fail(Cut("closed"))
    assert (b"engine_cut" in client.body) is told
    assert client.transport.aborted is not told
    assert client.transport.closed
    assert not client.body.endswith(b"0\r\n\r\n")
    assert (client.answer.complete, client.done) == (False, 1)
    assert (bench.counted(), bench.counted("cut")) == (1, 1)
    assert len(bench.legs) == 1
    assert settled(bench)


async def test_a_kept_refusal_is_given_when_no_retry_is_allowed() -> None:
    """RET-02 (https://github.com/webserver-llc/angie/pull/169): the engine's own status and body, and its place is held
    until then."""
    bench = two(retry=TableRetry(max_attempts=3, percent=0.0, min_per_second=0.0))
    client, _ = bench.ask()
    bench.legs[0].answer(b'{"error":"busy"}', 503)
    assert client.sent.startswith(b"HTTP/1.1 503 Said")
    assert client.body == b'{"error":"busy"}'
    assert (bench.counted(), bench.counted("full")) == (1, 1)
    assert client.done == 1
    assert settled(bench)


async def test_a_kept_refusal_whose_body_comes_later_is_passed_on_when_it_comes() -> None:
    bench = two()
    client, _ = bench.ask()
    first = bench.legs[0]
    first.head(500, "Content-Length: 6")
    assert first.paused
    assert bench.in_flight == 2
    first.body(b"abc")
    bench.legs[1].fail(NotSent("refused"))
    assert not first.paused
    first.body(b"def")
    first.end()
    assert client.sent.startswith(b"HTTP/1.1 500 Said")
    assert client.body == b"abcdef"
    assert (bench.counted("engine_error"), bench.counted("unreached"), bench.counted()) == (1, 1, 2)
    assert settled(bench)


async def test_a_kept_refusal_that_breaks_off_before_a_byte_of_it_was_passed_on_is_a_502() -> None:
    """RET-01: no client sees a bare cut where the router can still say what happened."""
    bench = two()
    client, _ = bench.ask()
    first = bench.legs[0]
    first.head(500, "Content-Length: 6")
    bench.legs[1].fail(NotSent("refused"))
    first.fail(Cut("closed"))
    assert client.sent.startswith(b"HTTP/1.1 502")
    assert client.done == 1
    assert bench.counted() == 2
    assert settled(bench)


async def test_a_better_answer_lets_go_of_the_kept_one_at_once() -> None:
    """protection.md: a retry's answer streams; the 503 it replaced holds no place and no connection."""
    bench = two()
    _, exchange = bench.ask(STREAM)
    bench.legs[0].head(503, "Content-Length: 6")
    bench.legs[1].head(200, *SSE)
    assert bench.in_flight == 2
    bench.legs[1].body(EVENT)
    assert bench.in_flight == 1
    assert bench.legs[0].aborted
    assert exchange is not None
    exchange.client_gone()
    assert settled(bench)


async def test_a_timed_out_attempt_is_closed_before_the_next_starts() -> None:
    """protection.md: closed upstream before the next starts."""
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=SWEEP, idle=0.0, send=0.0, unary=0.0))
    order: list[str] = []
    client, _ = bench.ask(STREAM)
    first = bench.legs[0]
    abort = first.abort

    def closed() -> None:
        order.append("closed")
        abort()

    first.abort = closed  # type: ignore[method-assign]
    await until(lambda: len(bench.legs) == 2)
    order.append("next")
    assert order[0] == "closed"
    assert first.aborted
    bench.legs[1].answer()
    assert client.sent.startswith(b"HTTP/1.1 200")
    assert (bench.counted("timeout"), bench.counted("ok")) == (1, 1)
    assert settled(bench)


async def test_limits_after_the_first_byte_end_the_stream_with_an_event() -> None:
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=0.0, idle=SWEEP, send=0.0, unary=0.0))
    client, _ = bench.ask(STREAM)
    bench.legs[0].head(200, *SSE)
    bench.legs[0].body(EVENT)
    await until(lambda: client.done)
    assert b"idle_timeout" in client.body
    assert bench.legs[0].aborted
    assert bench.counted("timeout") == bench.counted() == 1
    assert settled(bench)


async def test_a_unary_limit_holds_through_the_body() -> None:
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=0.0, idle=30.0, send=0.0, unary=4 * SWEEP))
    client, _ = bench.ask()
    bench.legs[0].head(200, "Content-Length: 9")
    bench.legs[0].body(b"abc")
    await until(lambda: client.done)
    assert client.transport.aborted
    assert bench.counted("timeout") == bench.counted() == 1
    assert settled(bench)


async def test_a_client_that_does_not_keep_up_holds_up_the_engine_and_the_send_limit_ends_both() -> None:
    """router.md, Timeouts: no progress to the client for `send` closes both legs; progress is what the client takes."""
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=0.0, idle=0.0, send=3 * SWEEP, unary=0.0))
    client, exchange = bench.ask(STREAM)
    assert exchange is not None
    leg = bench.legs[0]
    leg.head(200, *SSE)
    leg.body(EVENT)
    client.transport.unsent = 5
    exchange.client_paused()
    assert leg.paused
    for left in (4, 3, 2):
        client.transport.unsent = left
        await asyncio.sleep(2 * SWEEP)
    assert client.done == 0
    await until(lambda: client.done)
    assert client.transport.aborted
    assert leg.aborted
    assert bench.counted("client_gone") == bench.counted() == 1
    assert settled(bench)


async def test_a_client_that_keeps_up_again_lets_the_engine_go_on() -> None:
    bench = two()
    client, exchange = bench.ask(STREAM)
    assert exchange is not None
    leg = bench.legs[0]
    exchange.client_paused()
    leg.head(200, *SSE)
    leg.body(EVENT)
    assert leg.paused
    exchange.client_resumed()
    assert not leg.paused
    exchange.client_paused()
    leg.end()
    assert bench.in_flight == 0, "the engine has done its work"
    assert client.done == 0, "what was written is still to be taken"
    exchange.client_resumed()
    assert (client.done, client.answer.complete) == (1, True)
    assert settled(bench)


async def test_a_stream_without_its_last_bytes_taken_ends_at_the_send_limit() -> None:
    bench = two(timeouts=TableTimeouts(connect=9.0, first_byte=0.0, idle=0.0, send=SWEEP, unary=0.0))
    client, exchange = bench.ask()
    assert exchange is not None
    exchange.client_paused()
    client.transport.unsent = 5
    bench.legs[0].answer()
    assert client.done == 0
    await until(lambda: client.done)
    assert (client.transport.aborted, client.answer.complete) == (True, False)
    assert settled(bench)


@pytest.mark.parametrize("when", ["waiting", "before the head", "before the first byte", "streaming", "kept"])
async def test_a_client_that_leaves_ends_the_engines_work_in_the_same_turn(when: str) -> None:
    """router.md, Streams; HAS-04 (https://github.com/kubeai-project/kubeai/issues/447)."""
    engine = EngineAt(("http://a",), limit=1)
    bench = Bench(routing_table({"a": engine}, queue=TableQueue(max=5, deadline=30.0), retry=GENEROUS))
    if when == "waiting":
        bench.ask()
    client, exchange = bench.ask(STREAM)
    assert exchange is not None
    leg = bench.legs[-1]
    if when == "waiting":
        assert bench.waiting.count == 1
    if when in ("before the first byte", "streaming"):
        leg.head(200, *SSE)
    if when == "streaming":
        leg.body(EVENT)
    if when == "kept":
        leg.head(404, "Content-Length: 3")
    exchange.client_gone()
    assert client.done == 1
    assert bench.waiting.count == 0
    if when == "waiting":
        assert not leg.over
        leg.answer()
    else:
        assert leg.aborted
        assert bench.counted() == 1
        assert bench.counted("client_error" if when == "kept" else "client_gone") == 1
    assert settled(bench)


async def test_a_place_is_given_to_who_waits_when_an_answer_ends() -> None:
    engine = EngineAt(("http://a",), limit=1)
    bench = Bench(routing_table({"a": engine}, queue=TableQueue(max=2, deadline=30.0)))
    first, _ = bench.ask()
    second, _ = bench.ask()
    assert len(bench.legs) == 1
    bench.legs[0].answer()
    assert len(bench.legs) == 2
    bench.legs[1].answer()
    assert (first.done, second.done) == (1, 1)
    assert settled(bench)


async def test_who_waited_over_a_table_swap_goes_where_the_new_table_says() -> None:
    engines = {"a": EngineAt(("https://a",), limit=1)}
    queue = TableQueue(max=2, deadline=30.0)
    bench = Bench(routing_table(engines, queue=queue))
    bench.ask()
    bench.ask()
    later = routing_table(engines, queue=queue, revision=2)
    named = msgspec.structs.replace(later.engines[0], tls=TableTls(server_name="b.example"))
    bench.install(msgspec.structs.replace(later, engines=(named,)))
    bench.legs[0].answer()
    assert [leg.address.server_name for leg in bench.legs] == [None, "b.example"]
    bench.legs[1].answer()
    assert settled(bench)


async def test_a_full_queue_refuses_in_begin() -> None:
    bench = Bench(routing_table({"a": EngineAt(("http://a",), limit=1)}, queue=TableQueue(max=0, deadline=30.0)))
    bench.ask()
    client, exchange = bench.ask()
    assert exchange is None
    assert client.sent.startswith(b"HTTP/1.1 429")
    assert b"x-headrace-attempts: 0" in client.sent
    assert client.done == 0, "begin has said so already"
    bench.legs[0].answer()
    assert settled(bench)


@pytest.mark.parametrize(("old", "cut"), [(True, True), (False, False)])
async def test_a_client_that_half_closed_cant_take_what_it_got_for_the_whole(old: bool, cut: bool) -> None:
    """STR-01 with PRO-02: where the connection ends the body only a reset tells; else what was written flushes."""
    bench = two()
    client, exchange = bench.ask(STREAM, client=FakeClient(old=old))
    assert exchange is not None
    bench.legs[0].head(200, *SSE)
    bench.legs[0].body(EVENT)
    exchange.client_gone()
    assert client.transport.aborted is cut
    assert (client.answer.complete, client.done) == (False, 1)
    assert settled(bench)


@pytest.mark.parametrize("when", ["waiting", "trying", "kept", "streaming"])
async def test_shutdown_ends_every_request_once(when: str) -> None:
    """router.md, Shutdown: streams get an error event, the others a refusal."""
    engine = EngineAt(("http://a",), limit=1)
    bench = Bench(routing_table({"a": engine}, queue=TableQueue(max=5, deadline=30.0), retry=GENEROUS))
    clients = [bench.ask(STREAM)[0]]
    if when == "waiting":
        clients.append(bench.ask(STREAM)[0])
    if when == "kept":
        bench.legs[0].head(404, "Content-Length: 3")
    if when == "streaming":
        bench.legs[0].head(200, *SSE)
        bench.legs[0].body(EVENT)
    bench.proxy.end_all()
    async with asyncio.timeout(10):
        await bench.proxy.ended()
    for client in clients:
        assert client.done == 1
        assert client.sent.startswith(b"HTTP/1.1 200" if when == "streaming" else b"HTTP/1.1 503")
        assert b"shutting_down" in client.sent
    assert bench.counted() == 1
    assert settled(bench)


async def test_the_body_does_not_live_as_long_as_the_stream() -> None:
    """router.md: a body of many MiB must not live as long as the stream."""
    bench = two()
    client, exchange = bench.ask(STREAM | {"x": "y" * 100_000})
    assert exchange is not None
    assert bench.proxy.memory.held > 100_000
    bench.legs[0].head(200, *SSE)
    bench.legs[0].body(EVENT)
    assert bench.proxy.memory.held == 0
    assert exchange.asked.body == b""
    exchange.client_gone()
    assert client.done == 1
    assert settled(bench)


async def test_bodies_beyond_what_a_process_may_hold_are_refused_by_their_heads() -> None:
    bench = Bench(routing_table({"a": "http://a"}), memory=1000)
    bench.ask(STREAM | {"x": "y" * 700})
    client, exchange = bench.ask(STREAM | {"x": "y" * 700})
    assert exchange is None
    assert client.sent.startswith(b"HTTP/1.1 503")
    assert b"Retry-After: 1\r\n" in client.sent
    assert json.loads(client.body)["error"]["code"] == "router_overloaded"
    bench.legs[0].answer()
    assert settled(bench)


async def test_large_bodies_are_not_sent_again_and_the_engines_answer_is_given() -> None:
    bench = two(limits=TableLimits(body=10_000, retry_body=100))
    client, _ = bench.ask({"model": "m", "x": "y" * 200})
    bench.legs[0].answer(b"{}", 500)
    assert len(bench.legs) == 1
    assert client.sent.startswith(b"HTTP/1.1 500")
    client, _ = bench.ask({"model": "m", "x": "y" * 200})
    bench.legs[1].fail(NotSent("refused"))
    bench.legs[2].answer()
    assert client.sent.startswith(b"HTTP/1.1 200"), "what no engine has seen may be sent to another"
    assert settled(bench)


async def test_a_kept_connection_found_closed_is_no_fault_of_the_engine() -> None:
    """RET-01 (https://github.com/aio-libs/aiohttp/issues/6138)."""
    bench = Bench(routing_table({"a": "http://a"}, retry=GENEROUS))
    client, _ = bench.ask()
    bench.legs[0].fail(Lost("closed", reused=True))
    assert bench.pool.renewed == ["inference/a"]
    bench.legs[1].answer()
    assert client.sent.startswith(b"HTTP/1.1 200")
    assert bench.selector.ejected(0.0) == []
    assert settled(bench)


async def test_our_own_shortage_says_nothing_of_the_engine() -> None:
    """SCA-01: no sockets left is a 503 of ours."""
    bench = two()
    client, _ = bench.ask()
    while bench.proxy.running:
        bench.legs[-1].fail(NotSent("too many open files", own=True))
    assert client.sent.startswith(b"HTTP/1.1 503")
    assert b"router_overloaded" in client.body
    assert bench.counted("router_error") == bench.counted()
    assert settled(bench)


async def test_a_table_swap_leaves_running_requests_alone() -> None:
    """HAS-04: an engine that leaves the table ends its requests on its own old counts."""
    bench = two()
    client, _ = bench.ask(STREAM)
    leg = bench.legs[0]
    leg.head(200, *SSE)
    leg.body(EVENT)
    bench.install(routing_table({"b": "http://b"}, revision=2))
    assert bench.in_flight == 0
    leg.end()
    assert client.answer.complete
    assert bench.counted("ok") == 1
    assert settled(bench)


async def test_a_fault_of_our_own_ends_the_stream_once_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966): one status line, whatever fails later."""

    def fail(_: object) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(Event, "says_something", fail)
    bench = two()
    client, _ = bench.ask(STREAM)
    bench.legs[0].head(200, *SSE)
    with caplog.at_level(logging.ERROR):
        bench.legs[0].body(EVENT)
    assert client.sent.count(b"HTTP/1.1 ") == 1
    assert b"internal_error" in client.body
    assert client.done == 1
    assert bench.counted("router_error") == bench.counted() == 1
    assert settled(bench)


async def test_a_fault_before_the_head_is_a_500_and_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = two()

    def fail(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(bench.pool, "send", fail)
    with caplog.at_level(logging.ERROR):
        client, exchange = bench.ask()
    assert exchange is None
    assert client.sent.startswith(b"HTTP/1.1 500")
    assert "a bug" in caplog.text
    assert settled(bench)


async def test_pages_of_models_and_refusals_give_bodies_back() -> None:
    bench = two()
    client, exchange = bench.ask({"model": "unknown"})
    assert exchange is None
    assert json.loads(client.body)["error"]["code"] == "model_not_found"
    client, _ = bench.ask(b"{", target="/v1/messages")
    assert json.loads(client.body)["type"] == "error"
    assert bench.metrics.refused[("model_not_found",)].value == 1
    assert settled(bench)
