"""One request in several attempts: answers that are kept for want of a better one, limits, what is sent again."""

from headrace_api.table import TableLimits, TableRetry, TableTimeouts
from headrace_router.proxy.clock import SWEEP
from headrace_router.upstream.port import Cut, Lost, NotSent
from support.fake_legs import EVENT, GENEROUS, SSE, STREAM, Bench, settled, two
from support.router_process import until
from support.router_table import routing_table


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
