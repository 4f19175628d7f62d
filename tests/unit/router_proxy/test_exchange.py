"""One request as callbacks, between a pool and a client that the test plays."""

import json

import msgspec
import pytest

from headrace_api.table import TableQueue, TableTls
from headrace_router.upstream.port import Cut
from support.fake_legs import EVENT, SSE, STREAM, Bench, FakeClient, settled, two
from support.router_table import EngineAt, routing_table


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


async def test_pages_of_models_and_refusals_give_bodies_back() -> None:
    bench = two()
    client, exchange = bench.ask({"model": "unknown"})
    assert exchange is None
    assert json.loads(client.body)["error"]["code"] == "model_not_found"
    client, _ = bench.ask(b"{", target="/v1/messages")
    assert json.loads(client.body)["type"] == "error"
    assert bench.metrics.refused[("model_not_found",)].value == 1
    assert settled(bench)
