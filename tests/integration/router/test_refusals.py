"""What the router refuses: hostile requests, orders by header, redirects, and what finds no place at an engine."""

import asyncio
import time
from pathlib import Path

import pytest

from headrace_api.table import ShedShare, TableQueue
from support.fake_engine import Exchange, FakeEngine, answers, says
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, metric, reads, router_in_loop, until
from support.router_table import SESSION, EngineAt, routing_table

ASK = {"model": "m"}


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
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
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
        assert "INFO fake line" not in caplog.text
    assert len(capfd.readouterr().out.splitlines()) == 1


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
            await reads(2, router.admin_address, "headrace_queued_requests")
            await reads(14, router.admin_address, "headrace_shed_total", reason="saturated")
            assert await metric(router.admin_address, "headrace_request_duration_seconds_count") == 0
            await reads(20, router.admin_address, "headrace_offered_requests_total")
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
            await reads(1, router.admin_address, "headrace_offered_requests_total")
            await reads(1, router.admin_address, "headrace_client_retries_total")
            await reads(2, router.admin_address, "headrace_shed_total", reason="shed")
            assert await metric(router.admin_address, "headrace_offered_output_tokens_total") == 0
            assert await metric(router.admin_address, "headrace_ended_requests_total") == 0
            assert engine.requests == []
