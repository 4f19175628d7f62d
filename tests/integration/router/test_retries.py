"""Engines that fail, are full, or changed hands: re-picks, budgeted retries, answers that are kept meanwhile."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_api.table import TableEjection, TableLimits, TableQueue, TableRetry, TableTimeouts
from headrace_router.http1.header_rules import MAX_HOPS
from support.fake_engine import Exchange, FakeEngine, answers, says
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, metric, reads, router_in_loop, until
from support.router_table import EngineAt, routing_table, table_bytes

ASK = {"model": "m"}
GENEROUS = TableRetry(max_attempts=3, percent=100.0, min_per_second=100.0)
NEVER_OUT = TableEjection(consecutive=1000)


@pytest.fixture
def unused_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, not listening: connects are refused
        yield holder.getsockname()[1]


async def test_a_kept_connection_closed_under_the_request_is_retried_on_a_new_one(tmp_path: Path) -> None:
    """RET-01 (https://github.com/aio-libs/aiohttp/issues/6138), choice (i): completions are replay-safe; one retry on
    a NEW connection, out of the budget; engine A isn't ejected for it."""

    async def closes_second(exchange: Exchange) -> None:
        if exchange.nth_on_connection > 1:
            exchange.close()
            return
        await answers(exchange)

    async with FakeEngine(closes_second) as engine:
        table = routing_table({"a": engine.url}, retry=GENEROUS, ejection=TableEjection(consecutive=1))
        async with router_in_loop(tmp_path / "t", table) as router:
            # Several connections are kept first: after one was found closed, the others are not tried one by one.
            together = await asyncio.gather(*(ask(router.address, post(ASK)) for _ in range(6)))
            assert [answer.status for answer in together] == [200] * 6
            statuses = [(await ask(router.address, post(ASK))).status for _ in range(4)]
            assert statuses == [200] * 4
            assert await metric(router.admin_address, "headrace_retries_total", kind="retry") >= 1
            assert await metric(router.admin_address, "headrace_ejected_endpoints") == 0


async def test_without_budget_the_same_is_a_502_in_json(tmp_path: Path) -> None:
    """RET-01: no client sees a bare 500."""

    async def closes_second(exchange: Exchange) -> None:
        if exchange.nth_on_connection > 1:
            exchange.close()
            return
        await answers(exchange)

    async with FakeEngine(closes_second) as engine:
        none = TableRetry(max_attempts=3, percent=0.0, min_per_second=0.0)
        table = routing_table({"a": engine.url}, retry=none)
        async with router_in_loop(tmp_path / "t", table) as router:
            got = [await ask(router.address, post(ASK)) for _ in range(6)]
            failed = [answer for answer in got if answer.status != 200]
            assert {(answer.status, answer.code) for answer in failed} == {(502, "engine_failed")}
            await reads(len(failed), router.admin_address, "headrace_retries_total", kind="refused")


@pytest.mark.parametrize(("floor", "admitted"), [(0.0, 2), (3.0, 5)])
async def test_a_budget_of_20_percent_admits_the_same_in_any_order(tmp_path: Path, floor: float, admitted: int) -> None:
    """RET-02 (https://github.com/envoyproxy/envoy/issues/30205): ten fail together, 2 retries are admitted (the floor's
    tokens beside them), the refused ones return A's own status and body."""
    together = asyncio.Event()

    async def busy(exchange: Exchange) -> None:
        if exchange.number == 10:
            together.set()
        await together.wait()
        await exchange.answer(b'{"error":{"message":"A busy"}}', "503 Service Unavailable")

    async with FakeEngine(busy) as a, FakeEngine(answers) as b:
        table = routing_table(
            {"a": EngineAt((a.url,), weight=1), "b": EngineAt((b.url,), weight=0)},
            retry=TableRetry(max_attempts=2, percent=20.0, min_per_second=floor),
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            got = await asyncio.gather(*(ask(router.address, post(ASK)) for _ in range(10)))
            assert len(b.requests) == admitted
            assert sorted(answer.status for answer in got) == [200] * admitted + [503] * (10 - admitted)
            refused = [answer for answer in got if answer.status == 503]
            assert {answer.body for answer in refused} == {b'{"error":{"message":"A busy"}}'}
            assert {answer.header("x-headrace-engine") for answer in refused} == {"a"}
            assert in_flight(router) == 0


async def test_a_full_budget_allows_the_only_request(tmp_path: Path) -> None:
    """RET-02 (b): one request in flight, 100 %: the retry is allowed."""
    async with FakeEngine(says("500 Oops")) as a, FakeEngine(answers) as b:
        table = routing_table(
            {"a": EngineAt((a.url,), weight=1), "b": EngineAt((b.url,), weight=0)},
            retry=TableRetry(max_attempts=2, percent=100.0, min_per_second=0.0),
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.header("x-headrace-reason")) == (200, "retry")
            assert answer.header("x-headrace-attempts") == "2"


async def test_connects_that_fail_are_picked_anew_without_budget(tmp_path: Path, unused_port: int) -> None:
    """protection.md, Retries: what no engine can have accepted is a re-pick, outside the budget."""
    async with FakeEngine(answers) as b:
        table = routing_table(
            {"a": EngineAt((f"http://127.0.0.1:{unused_port}",), weight=1), "b": EngineAt((b.url,), weight=0)},
            retry=TableRetry(max_attempts=2, percent=0.0, min_per_second=0.0),
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.header("x-headrace-engine")) == (200, "b")
            attempts = [(await ask(router.address, post(ASK))).header("x-headrace-attempts") for _ in range(10)]
            assert attempts[-1] == "1"
            await reads(1, router.admin_address, "headrace_ejected_endpoints", engine="inference/a")
            assert in_flight(router) == 0


async def test_a_request_that_no_engine_saw_waits_for_a_full_one(tmp_path: Path, unused_port: int) -> None:
    """A pod's death fills the others for a moment: what could not connect to it queues as a first pick would."""
    release = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await release.wait()
        await answers(exchange)

    async with FakeEngine(slow) as busy:
        engines = {
            "gone": EngineAt((f"http://127.0.0.1:{unused_port}",), weight=9999),
            "busy": EngineAt((busy.url,), weight=1, limit=1),
        }
        table = routing_table(engines, queue=TableQueue(max=1, deadline=30.0))
        async with router_in_loop(tmp_path / "t", table) as router:
            holder = asyncio.create_task(ask(router.address, post(ASK), 60))
            await busy.until(lambda: len(busy.requests) == 1)
            queue = router.selector.view.policies[0].queue
            waiter = asyncio.create_task(ask(router.address, post(ASK), 60))
            await until(lambda: len(queue) == 1)
            refused = await ask(router.address, post(ASK), 60)
            assert (refused.status, refused.code) == (429, "saturated")
            release.set()
            assert [(await task).status for task in (holder, waiter)] == [200, 200]
            assert in_flight(router) == 0


async def test_an_engine_that_black_holes_packets_costs_its_connect_limit_only(tmp_path: Path) -> None:
    """SCA-02 (https://github.com/BerriAI/litellm/issues/12669): a connect that never completes is given up after the
    connect limit and picked anew; other engines are unaffected."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        fillers = [socket.socket() for _ in range(3)]  # the kernel drops further SYNs once the backlog is full
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(hole.getsockname())
            async with FakeEngine(answers) as b:
                table = routing_table(
                    {
                        "a": EngineAt((f"http://127.0.0.1:{hole.getsockname()[1]}",), weight=1),
                        "b": EngineAt((b.url,), weight=0),
                    },
                    timeouts=TableTimeouts(connect=0.3, first_byte=0.0, idle=0.0, send=0.0, unary=0.0),
                )
                async with router_in_loop(tmp_path / "t", table) as router:
                    answer = await ask(router.address, post(ASK))
                    assert (answer.status, answer.header("x-headrace-engine")) == (200, "b")
                    assert answer.header("x-headrace-attempts") == "2"
                    assert in_flight(router) == 0
        finally:
            for filler in fillers:
                filler.close()


async def test_an_upgrade_that_nobody_asked_for_is_a_failure(tmp_path: Path) -> None:
    """PRO-04, response direction: 101 is never relayed."""

    async def switches(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
        await exchange.closed_by_router()

    async with FakeEngine(switches) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.code) == (502, "engine_failed")
            assert in_flight(router) == 0


async def test_no_engine_to_reach_says_so(tmp_path: Path, unused_port: int) -> None:
    async with router_in_loop(
        tmp_path / "t", routing_table({"a": f"http://127.0.0.1:{unused_port}"}, ejection=NEVER_OUT)
    ) as router:
        answer = await ask(router.address, post(ASK))
        assert (answer.status, answer.code) == (502, "engine_unreachable")
        assert answer.header("x-headrace-attempts") == "1"
        assert in_flight(router) == 0


async def test_an_answer_that_was_kept_comes_when_nothing_better_does(tmp_path: Path, unused_port: int) -> None:
    """protection.md: refused retries return the engine's own answer, body included, also after a further attempt."""
    async with FakeEngine(says("500 Oops", b'{"error":"mine"}')) as a:
        table = routing_table(
            {"a": EngineAt((a.url,), weight=1), "b": EngineAt((f"http://127.0.0.1:{unused_port}",), weight=0)},
            retry=GENEROUS,
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.body) == (500, b'{"error":"mine"}')
            assert in_flight(router) == 0


async def test_large_bodies_are_not_kept_for_a_retry(tmp_path: Path) -> None:
    async with FakeEngine(says("500 Oops")) as a, FakeEngine(answers) as b:
        table = routing_table(
            {"a": EngineAt((a.url,), weight=1), "b": EngineAt((b.url,), weight=0)},
            retry=GENEROUS,
            limits=TableLimits(body=10_000, retry_body=100),
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            assert (await ask(router.address, post({"model": "m", "x": "y" * 200}))).status == 500
            assert (await ask(router.address, post(ASK))).status == 200
            too_large = await ask(router.address, post({"model": "m", "x": "y" * 20_000}))
            assert (too_large.status, too_large.code) == (413, "body_too_large")


@pytest.mark.parametrize("told", ["0", "Wed, 01 Jan 2031 00:00:00 GMT", "-5", "abc", "99999999", None])
async def test_any_retry_after_is_survived_and_other_engines_answer_at_once(tmp_path: Path, told: str | None) -> None:
    """RET-05 (https://github.com/BerriAI/litellm/issues/20722): while other engines are free the client isn't delayed;
    an engine's 429 means full, not failed."""
    headers = () if told is None else (f"Retry-After: {told}",)
    script = says("429 Too Many Requests", b"{}", *headers)
    async with FakeEngine(script) as a, FakeEngine(answers) as b:
        table = routing_table(
            {"a": EngineAt((a.url,), weight=9000), "b": EngineAt((b.url,), weight=1000)},
            retry=GENEROUS,
            ejection=TableEjection(consecutive=1),
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            for _ in range(5):
                assert (await ask(router.address, post(ASK))).status == 200
            waits = told not in ("0",)
            assert (len(a.requests) == 1) is waits
            assert await metric(router.admin_address, "headrace_ejected_endpoints") == 0


async def test_an_address_that_changed_hands_is_asked_once_and_its_404_is_not_believed(tmp_path: Path) -> None:
    """STA-04 (https://github.com/kubernetes/kubernetes/issues/109414), before publication: the 404 of another workload
    at a's old address isn't passed on while another engine of the model exists."""
    missing = b'{"object":"error","message":"The model `m` does not exist.","code":404}'
    async with FakeEngine(says("404 Not Found", missing)) as z, FakeEngine(answers) as b:
        table = routing_table(
            {"a": EngineAt((z.url,), weight=1), "b": EngineAt((b.url,), weight=0)}, retry=GENEROUS, ejection=NEVER_OUT
        )
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.header("x-headrace-engine")) == (200, "b")
            assert (len(z.requests), len(b.requests)) == (1, 1)
        only = routing_table({"a": z.url}, retry=GENEROUS)
        async with router_in_loop(tmp_path / "t2", only) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.body) == (404, missing)


async def test_an_address_under_another_id_inherits_nothing(tmp_path: Path) -> None:
    """STA-04, variant: published under another id: no request of m1 goes to z, and no connection of a is reused."""
    path = tmp_path / "t"
    async with FakeEngine(answers) as shared, FakeEngine(answers) as other:
        first = routing_table({"a": shared.url}, model="m1")
        async with router_in_loop(path, first) as router:
            assert (await ask(router.address, post({"model": "m1"}))).status == 200
            before = shared.connections
            second = routing_table({"z": shared.url, "b": other.url}, model="m2", revision=2)
            path.write_bytes(table_bytes(second))
            await until(lambda: "m2" in router.selector.view.models)
            assert (await ask(router.address, post({"model": "m1"}))).status == 404
            for _ in range(2):
                assert (await ask(router.address, post({"model": "m2"}))).status == 200
            used = {request.connection for request in shared.requests[1:]}
            assert all(number > before or number > shared.requests[0].connection for number in used)
            assert len(shared.requests) == 2


async def test_an_answer_that_was_kept_is_let_go_when_a_better_one_streams(tmp_path: Path) -> None:
    """router.md, Selection: in-flight counts are what runs; a 503 that a retry replaced must hold no place and no
    connection for as long as the retry's answer streams."""
    release = asyncio.Event()

    async def stream(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(b"data: {}\n\n")
        await release.wait()
        await exchange.end_chunks()

    async def busy(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 1000\r\n\r\nbusy")
        await exchange.closed_by_router()

    async with FakeEngine(busy) as a, FakeEngine(stream) as b:
        table = routing_table({"a": EngineAt((a.url,), 9000), "b": EngineAt((b.url,), 1000)}, retry=GENEROUS)
        async with router_in_loop(tmp_path / "t", table) as router:
            asked = [RawClient(router.address) for _ in range(4)]
            for client in asked:
                async with asyncio.timeout(20):
                    await client.__aenter__()
                    await client.send(post(ASK | {"stream": True}))
                    await client.until(b"data: {}")
            assert len(a.requests) >= 1
            counts = {engine: count for engine, _, count in router.selector.in_flight()}
            assert counts == {"inference/a": 0, "inference/b": 4}
            await a.until(lambda: a.open_connections == 0)
            release.set()
            for client in asked:
                await client.__aexit__(None, None, None)
            await until(lambda: in_flight(router) == 0)


async def test_an_engine_that_is_a_router_again_is_no_endless_loop(tmp_path: Path) -> None:
    """Whoever may name an engine's address can name the router's own. One request is then at most MAX_HOPS long, and no
    hop tries again."""
    path = tmp_path / "t.json"
    async with router_in_loop(path) as router:
        path.write_bytes(table_bytes(routing_table({"a": router.address, "b": router.address}, retry=GENEROUS)))
        await until(lambda: router.tables.applied)
        answer = await ask(router.address, post(ASK))
        assert (answer.status, answer.code) == (508, "loop")
        await reads(MAX_HOPS + 1, router.admin_address, "headrace_picks_total")
        assert await metric(router.admin_address, "headrace_ejected_endpoints") == 0
        await until(lambda: in_flight(router) == 0)
        hops = ", ".join(f"10.0.0.{number}" for number in range(MAX_HOPS + 1))
        assert (await ask(router.address, post(ASK, "/v1/chat/completions", f"x-forwarded-for: {hops}"))).status == 508
