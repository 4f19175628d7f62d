"""Traces of real requests, at a real OTLP receiver: spans, the context that engines get, and what a dead one costs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from headrace_api.table import TableRetry
from headrace_router.telemetry import span_export
from headrace_router.telemetry.trace_settings import TraceSettings
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.otlp import Collector, collector
from support.raw_client import ask, post
from support.router_process import reads, router_in_loop, router_process, until
from support.router_table import routing_table, table_bytes

ASK = {"model": "m"}
CHAT = "/v1/chat/completions"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans leave soon; what the machine's own environment says of telemetry is not asked."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


def tracing(made: Collector, ratio: float = 0.0, queue: int = 2048) -> dict[str, Any]:
    return {"traces": TraceSettings(f"{made.url}/v1/traces", ratio, queue)}


async def says_usage(exchange: Exchange) -> None:
    await exchange.answer(b'{"usage":{"prompt_tokens":30,"completion_tokens":4}}')


async def test_a_sampled_request_is_two_spans_and_the_engine_is_told(tmp_path: Path) -> None:
    async with collector() as made, FakeEngine(says_usage) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, **tracing(made)) as router:
            request = post(ASK, f"{CHAT}?key=secret", f"TraceParent: {SAMPLED}", f"tracestate: {STATE}", "Api-Key: k")
            assert (await ask(router.address, request)).status == 200
            await until(lambda: len(made.spans) == 2)
            await reads(2, router.admin_address, "headrace_trace_spans_total", result="exported")
        (server,), (client,) = made.of("server"), made.of("client")
        assert (server.trace, server.parent, server.state) == (TRACE, SPAN, STATE)
        assert (client.trace, client.parent) == (TRACE, server.span)
        assert server.start <= client.start <= client.end <= server.end
        (arrived,) = engine.requests
        assert arrived.values("traceparent") == [f"00-{TRACE}-{client.span}-01"]
        assert arrived.values("tracestate") == [STATE]
        assert server.name == f"POST {CHAT}"
        assert client.name == "chat m"
        assert (
            server.attributes.items()
            >= {
                "http.request.method": "POST",
                "http.route": CHAT,
                "url.path": CHAT,
                "http.response.status_code": 200,
                "client.address": "127.0.0.1",
                "headrace.model": "m",
            }.items()
        )
        assert (
            client.attributes.items()
            >= {
                "http.request.method": "POST",
                "http.response.status_code": 200,
                "url.full": engine.url + CHAT,
                "server.address": "127.0.0.1",
                "server.port": engine.port,
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.usage.input_tokens": 30,
                "gen_ai.usage.output_tokens": 4,
                "headrace.engine": "inference/a",
                "headrace.outcome": "ok",
            }.items()
        )
        assert not server.failed
        assert not client.failed
        assert made.resource["service.name"] == "headrace-router"
        assert "secret" not in str(made.spans)


@pytest.mark.parametrize("on", [False, True])
async def test_what_is_not_sampled_passes_on_as_it_came(tmp_path: Path, on: bool) -> None:
    """Tracing off, and a caller who doesn't sample: header lines reach the engine byte for byte, also broken ones."""
    lines = (f"TRACEPARENT: {UNSAMPLED}", f"TraceState:  {STATE} ", "tracestate: b=2")
    broken = ("traceparent: 00-zz", "traceparent: again", "tracestate: ?")
    async with collector() as made, FakeEngine(answers) as engine:
        settings = tracing(made) if on else {}
        async with router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), **settings) as router:
            for given in (lines, broken):
                assert (await ask(router.address, post(ASK, CHAT, *given))).status == 200
                came = [line for line in engine.requests[-1].head.decode().split("\r\n") if "trace" in line.lower()]
                assert [line.split(":")[0] for line in came] == [line.split(":")[0] for line in given]
                assert [line.split(":")[1].strip() for line in came] == [line.split(":")[1].strip() for line in given]
        assert made.posts == 0


async def test_a_trace_begins_here_for_the_sampled_part(tmp_path: Path) -> None:
    """W3C Trace Context, 4.3: a parent that is not valid begins a new trace, without the state beside it."""
    async with collector() as made, FakeEngine(answers) as engine:
        async with router_in_loop(
            tmp_path / "t", routing_table({"a": engine.url}), **tracing(made, ratio=1.0)
        ) as router:
            request = post(ASK, CHAT, f"traceparent: 00-{'0' * 32}-{SPAN}-01", f"tracestate: {STATE}")
            assert (await ask(router.address, request)).status == 200
            await until(lambda: len(made.spans) == 2)
        (server,), (client,) = made.of("server"), made.of("client")
        assert server.parent == ""
        assert server.trace == client.trace != "0" * 32
        (told,) = engine.requests[0].values("traceparent")
        assert told[:-2] == f"00-{client.trace}-{client.span}-"
        assert int(told[-2:], 16) & 1
        assert engine.requests[0].values("tracestate") == []


async def test_each_attempt_is_a_span_and_its_engine_gets_that_one(tmp_path: Path) -> None:
    async def fails_first(exchange: Exchange) -> None:
        if exchange.request.values("traceparent")[0].endswith("-01") and len(seen) == 0:
            seen.append(1)
            await exchange.answer(b"{}", "500 Internal Server Error")
        else:
            await answers(exchange)

    seen: list[int] = []
    async with collector() as made, FakeEngine(fails_first) as one, FakeEngine(fails_first) as two:
        table = routing_table(
            {"a": one.url, "b": two.url}, retry=TableRetry(max_attempts=3, percent=100.0, min_per_second=100.0)
        )
        async with router_in_loop(tmp_path / "t", table, **tracing(made)) as router:
            assert (await ask(router.address, post(ASK, CHAT, f"traceparent: {SAMPLED}"))).status == 200
            await until(lambda: len(made.spans) == 3)
        (server,), (first, second) = made.of("server"), made.of("client")
        assert (first.parent, second.parent) == (server.span, server.span)
        assert (first.failed, second.failed, server.failed) == (True, False, False)
        assert (first.attributes["headrace.outcome"], first.attributes["error.type"]) == ("engine_error", "500")
        assert first.attributes["http.response.status_code"] == 500
        assert "http.request.resend_count" not in first.attributes
        assert second.attributes["http.request.resend_count"] == 1
        told = {request.values("traceparent")[0] for request in (*one.requests, *two.requests)}
        assert told == {f"00-{TRACE}-{span.span}-01" for span in (first, second)}


async def test_a_cut_stream_and_a_refusal_show(tmp_path: Path) -> None:
    async def cut(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        exchange.close()

    async with collector() as made, FakeEngine(cut) as engine:
        async with router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), **tracing(made)) as router:
            parent = f"traceparent: {SAMPLED}"
            await ask(router.address, post({**ASK, "stream": True}, CHAT, parent))
            assert (await ask(router.address, post({"model": "none"}, CHAT, parent))).status == 404
            await until(lambda: len(made.spans) == 3)
        (client,), (streamed, refused) = made.of("client"), made.of("server")
        assert client.attributes["headrace.outcome"] == "cut"
        assert (client.failed, streamed.failed, refused.failed) == (True, True, False)
        assert (
            refused.attributes.items()
            >= {
                "headrace.code": "model_not_found",
                "http.response.status_code": 404,
            }.items()
        )


async def test_a_collector_that_hangs_costs_spans_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_export, "LAST_SPANS_S", 0.2)
    async with collector() as made, FakeEngine(answers) as engine:
        made.hanging = asyncio.Event()
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, **tracing(made, queue=8)) as router:
            for _ in range(10):
                assert (await ask(router.address, post(ASK, CHAT, f"traceparent: {SAMPLED}"))).status == 200
            await until(lambda: made.posts > 0)
            await reads(12, router.admin_address, "headrace_trace_spans_total", result="dropped")
        assert router.metrics.spans[("dropped",)].value == 20


async def test_a_collector_that_refuses_is_counted(tmp_path: Path) -> None:
    async with collector() as made, FakeEngine(answers) as engine:
        made.status = 400
        async with router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), **tracing(made)) as router:
            assert (await ask(router.address, post(ASK, CHAT, f"traceparent: {SAMPLED}"))).status == 200
            await until(lambda: router.metrics.spans[("failed",)].value == 2)


async def test_the_environment_turns_it_on_and_the_last_spans_leave_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    async with collector() as made, FakeEngine(answers) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        environment = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": made.url,
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",
            "OTEL_SERVICE_NAME": "mine",
        }
        async with router_process("--table", str(path), "--drain-delay", "0", env=environment) as router:
            assert (await ask(router.url, post(ASK, CHAT, f"traceparent: {SAMPLED}"))).status == 200
            assert made.spans == []
            router.terminate()
            assert await router.exit_code() == 0
        assert len(made.spans) == 2
        assert made.resource["service.name"] == "mine"
