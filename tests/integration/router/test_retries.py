"""Re-picks, budgeted retries, engines that are full, and what never is retried."""

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_api.table import ShedShare, TableEjection, TableLimits, TableQueue, TableRetry, TableTimeouts
from support.fake_engine import Exchange, FakeEngine, Script, answers
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, metric, router_in_loop, until
from support.router_table import SESSION, EngineAt, routing_table, table_bytes

ASK = {"model": "m"}
GENEROUS = TableRetry(max_attempts=3, percent=100.0, min_per_second=100.0)
NEVER_OUT = TableEjection(consecutive=1000)


def says(status: str, body: bytes = b'{"error":{"message":"A busy"}}', *headers: str) -> Script:
    """An engine that always answers so."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(body, status, headers)

    return script


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
            assert await metric(router.admin_address, "headrace_retries_total", kind="refused") == len(failed)


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
            assert await metric(router.admin_address, "headrace_ejected_endpoints", engine="inference/a") == 1
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


async def test_all_engines_full_for_a_while_says_how_long(tmp_path: Path) -> None:
    """SCA-04 (https://github.com/ray-project/ray/pull/65193): 503 or 429 with about the engines' Retry-After."""
    script = says("503 Service Unavailable", b"{}", "Retry-After: 17")
    async with FakeEngine(script) as a:
        table = routing_table({"a": a.url})
        async with router_in_loop(tmp_path / "t", table) as router:
            assert (await ask(router.address, post(ASK))).status == 503
            answer = await ask(router.address, post(ASK))
            assert answer.status in (429, 503)
            assert answer.code == "engines_penalised"
            assert 15 <= int(answer.header("Retry-After") or 0) <= 17
            assert answer.header("x-should-retry") == "false"
            assert len(a.requests) == 1


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "302 Found"])
async def test_redirects_are_relayed_not_followed(tmp_path: Path, status: str) -> None:
    """SEC-04 (https://github.com/aio-libs/aiohttp/pull/12275): status and Location unchanged, nothing else is asked."""
    async with FakeEngine(answers) as thief:
        location = f"{thief.url}/steal"
        async with FakeEngine(says(status, b"", f"Location: {location}")) as engine:
            table = routing_table({"a": engine.url})
            async with router_in_loop(tmp_path / "t", table) as router:
                secrets = ("Authorization: Bearer t", "X-Api-Key: k")
                answer = await ask(router.address, post(ASK, "/v1/chat/completions", *secrets))
                assert answer.status == int(status[:3])
                assert answer.header("Location") == location
                assert len(engine.requests) == 1
        assert thief.connections == 0


HOSTILE = {
    "deep": b'{"model":"m","x":' + b"[" * 1500 + b"]" * 1500 + b"}",
    "digits": b'{"model":"m","seed":' + b"9" * 5000 + b"}",
    "duplicate": b'{"model":"m","model":"z"}',
    "nan": b'{"model":"m","temperature":NaN}',
    "bytes": b"\xff\xfe{}",
    "newline": b'{"model":"m\\nINFO fake line","messages":[]}',
    "empty": b"",
    "list": b'["model"]',
    "surrogate": b'{"model":"\\ud800"}',
    "number": b'{"model":3}',
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
async def test_hostile_bodies_are_the_clients_fault(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEC-05 (https://github.com/raullenchai/Rapid-MLX/pull/798): 4xx in JSON, no retry, no penalty, no forged line."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), access_log=True) as router,
    ):
        answer = await ask(router.address, post(HOSTILE[name]))
        assert answer.status in (400, 404)
        assert answer.header("Content-Type") == "application/json"
        assert engine.requests == []
        assert await metric(router.admin_address, "headrace_ejected_endpoints") == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1
        assert "INFO fake line" not in caplog.text


async def test_a_client_chooses_neither_engine_nor_state(tmp_path: Path) -> None:
    """SEC-02 (https://github.com/agentgateway/agentgateway/pull/3144): the same engine as without the headers, and
    the engine sees none of them."""
    orders = (
        "x-gateway-destination-endpoint: 169.254.169.254:80",
        "target-pod: 10.0.0.9:8000",
        "x-router-engine: b",
        "x-headrace-engine: b",
        "x-request-attempt: 99",
        "x-envoy-max-retries: 50",
        "X-Forwarded-For: 1.2.3.4",
    )
    async with FakeEngine(answers) as a, FakeEngine(answers) as b:
        table = routing_table({"a": a.url, "b": b.url}, affinity=SESSION)
        async with router_in_loop(tmp_path / "t", table) as router:
            for session in range(8):
                key = f"x-session-id: s{session}"
                plain = await ask(router.address, post(ASK, "/v1/chat/completions", key))
                ordered = await ask(router.address, post(ASK, "/v1/chat/completions", key, *orders))
                assert plain.header("x-headrace-engine") == ordered.header("x-headrace-engine")
            for request in [request for engine in (a, b) for request in engine.requests]:
                assert not {name.lower() for name, _ in request.headers} & {
                    order.partition(":")[0].lower() for order in orders[:-1]
                }
                assert request.values("X-Forwarded-For")[0] in ("127.0.0.1", "1.2.3.4, 127.0.0.1")


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /v1/x/../../sleep?level=2 HTTP/1.1",
        b"POST /v1/x/../chat/completions HTTP/1.1",
        b"POST /v1/chat%2Fcompletions HTTP/1.1",
        b"POST /v1/%2e%2e/reset_prefix_cache HTTP/1.1",
        b"GET /v1/../metrics HTTP/1.1",
        b"GET /v1/..%2fmetrics HTTP/1.1",
        b"GET //v1/models HTTP/1.1",
        b"POST http://evil.example/sleep HTTP/1.1",
    ],
)
async def test_dot_segments_reach_no_engine(tmp_path: Path, raw: bytes) -> None:
    """SEC-01 (https://github.com/LuthienResearch/luthien-proxy/issues/676): refused by the router itself."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        answer = await ask(router.address, raw + b'\r\nHost: r\r\nContent-Length: 13\r\n\r\n{"model":"m"}')
        assert answer.status in (400, 404)
        assert engine.requests == []


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


async def test_the_queue_waits_then_refuses_and_touches_nothing(tmp_path: Path) -> None:
    """SCA-04 (https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/1082): 4 run, 2 wait, 14 get
    429 at once; models and probes stay exempt; who leaves the queue leaves it."""
    release = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await release.wait()
        await answers(exchange)

    async with FakeEngine(slow) as engine:
        table = routing_table({"a": EngineAt((engine.url,), limit=4)}, queue=TableQueue(max=2, deadline=30.0))
        async with router_in_loop(tmp_path / "t", table) as router:
            asking = [asyncio.create_task(ask(router.address, post(ASK), 60)) for _ in range(20)]
            await until(lambda: sum(task.done() for task in asking) == 14)
            refused = [task.result() for task in asking if task.done()]
            for answer in refused:
                assert (answer.status, answer.code) == (429, "saturated")
                assert int(answer.header("Retry-After") or 0) >= 1
                assert answer.header("x-should-retry") == "false"
                assert answer.header("x-headrace-attempts") == "0"
            await engine.until(lambda: len(engine.requests) == 4)
            assert await metric(router.admin_address, "headrace_queued_requests") == 2
            assert await metric(router.admin_address, "headrace_shed_total", reason="saturated") == 14
            assert await metric(router.admin_address, "headrace_request_duration_seconds_count") == 0
            assert await metric(router.admin_address, "headrace_offered_requests_total") == 20
            assert (await ask(router.address, b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")).status == 200
            release.set()
            served = [answer for answer in await asyncio.gather(*asking) if answer.status == 200]
            assert len(served) == 6
            assert in_flight(router) == 0


async def test_the_queue_is_left_by_clients_that_leave_and_at_its_deadline(tmp_path: Path) -> None:
    """SCA-04: queue wait ends when the client leaves; HAS-04: its place is given to nobody dead."""
    release = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await release.wait()
        await answers(exchange)

    async with FakeEngine(slow) as engine:
        table = routing_table({"a": EngineAt((engine.url,), limit=1)}, queue=TableQueue(max=5, deadline=0.5))
        async with router_in_loop(tmp_path / "t", table) as router:
            holder = asyncio.create_task(ask(router.address, post(ASK), 60))
            await engine.until(lambda: len(engine.requests) == 1)
            queue = router.selector.view.policies[0].queue
            async with RawClient(router.address) as leaver:
                await leaver.send(post(ASK))
                await until(lambda: len(queue) == 1)
            await until(lambda: len(queue) == 0)
            began = time.monotonic()
            late = await ask(router.address, post(ASK))
            assert (late.status, late.code) == (429, "saturated")
            assert time.monotonic() - began >= 0.4
            release.set()
            assert (await holder).status == 200
            assert in_flight(router) == 0


async def test_the_tables_shed_share_is_refused_and_still_offered(tmp_path: Path) -> None:
    """protection.md, Load shedding: counted by priority and reason, offered once, client retries apart."""
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url}, shed=(ShedShare(priority="default", share=1.0),))
        async with router_in_loop(tmp_path / "t", table) as router:
            answer = await ask(router.address, post(ASK))
            assert (answer.status, answer.code) == (429, "shed")
            assert answer.header("x-should-retry") == "false"
            again = await ask(router.address, post(ASK, "/v1/chat/completions", "x-stainless-retry-count: 1"))
            assert again.status == 429
            assert await metric(router.admin_address, "headrace_offered_requests_total") == 1
            assert await metric(router.admin_address, "headrace_client_retries_total") == 1
            assert await metric(router.admin_address, "headrace_shed_total", reason="shed") == 2
            assert await metric(router.admin_address, "headrace_offered_output_tokens_total") == 0
            assert await metric(router.admin_address, "headrace_ended_requests_total") == 0
            assert engine.requests == []


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
