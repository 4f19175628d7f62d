"""What passes through unchanged, and what ends at the router."""

import asyncio
import gzip
import logging
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_router.cli.reference import metrics_table
from headrace_router.listener.limits import Limits
from headrace_router.processes.families import RESTARTS, UP
from support.fake_engine import Exchange, FakeEngine, answers, streams
from support.raw_client import RawClient, ask, get, post
from support.router_process import in_flight, router_in_loop, until
from support.router_table import EngineAt, routing_table

ASK = {"model": "m"}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n"
CHUNK = b'{"choices":[{"index":0,"delta":{"content":"Hel"}}]}'


async def test_encoded_bytes_pass_unchanged(tmp_path: Path) -> None:
    """PRO-01 (https://github.com/aio-libs/aiohttp/issues/8477): gzip stays gzip, nothing is asked for in our name."""
    body = gzip.compress(b'{"ok":1}' * 20)

    async def zipped(exchange: Exchange) -> None:
        await exchange.answer(body, headers=("Content-Encoding: gzip",))

    async with FakeEngine(zipped) as engine, router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router:
        answer = await ask(router.address, post(ASK))
        assert (answer.status, answer.body) == (200, body)
        assert answer.header("Content-Encoding") == "gzip"
        assert answer.values("Content-Length") == [str(len(body))]
        for name in ("Accept-Encoding", "Accept", "User-Agent"):
            assert engine.requests[0].values(name) == []


@pytest.mark.parametrize("keep", [(), ("Connection: keep-alive",)], ids=["plain", "keep-alive"])
async def test_http_1_0_clients_get_no_chunks_and_see_the_end(tmp_path: Path, keep: tuple[str, ...]) -> None:
    """PRO-02 (https://github.com/aio-libs/aiohttp/issues/1828): unframed, and the connection closes at once."""
    script = streams(CHUNK)
    async with (
        FakeEngine(script) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post(ASK, "/v1/chat/completions", *keep, version="1.0"))
        raw = await client.to_end()
        assert b"transfer-encoding" not in raw.lower()
        assert raw.partition(b"\r\n\r\n")[2] == b"data: " + CHUNK + b"\n\ndata: [DONE]\n\n"


async def test_http_1_0_keep_alive_with_a_length_is_kept(tmp_path: Path) -> None:
    """PRO-02: a true Content-Length needs no close."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        for _ in range(2):
            await client.send(post(ASK, "/v1/chat/completions", "Connection: keep-alive", version="1.0"))
            answer = await client.answer()
            assert (answer.status, answer.header("Connection")) == (200, "keep-alive")


async def test_headers_of_one_hop_end_here_in_both_directions(tmp_path: Path) -> None:
    """PRO-04 (https://github.com/golang/go/issues/16875): an h2c offer is ignored, the whole body arrives."""

    async def chatty(exchange: Exchange) -> None:
        await exchange.answer(
            headers=("Connection: keep-alive, X-Hop-Back", "X-Hop-Back: 1", "Keep-Alive: timeout=5", "X-Stays: 1")
        )

    async with (
        FakeEngine(chatty) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        offer = (
            "Connection: Upgrade, HTTP2-Settings, X-Hop",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABk",
            "X-Hop: 1",
            "TE: trailers",
            "Proxy-Authorization: Basic eDp5",
        )
        large = {"model": "m", "x": "y" * 300_000}
        assert (await ask(router.address, post(large, "/v1/chat/completions", *offer))).status == 200
        assert len(engine.requests[0].body) > 300_000
        answer = await ask(router.address, post(ASK, "/v1/chat/completions", *offer))
        assert answer.status == 200
        assert engine.requests[1].body == b'{"model": "m"}'
        gone = ("Connection", "Upgrade", "HTTP2-Settings", "X-Hop", "TE", "Proxy-Authorization", "Keep-Alive")
        assert [name for name in gone if engine.requests[0].values(name)] == []
        assert [name for name in ("X-Hop-Back", "Keep-Alive", "Connection") if answer.values(name)] == []
        assert answer.header("X-Stays") == "1"


async def test_the_target_reaches_the_engine_byte_for_byte(tmp_path: Path) -> None:
    """PRO-05 (https://github.com/aio-libs/aiohttp/issues/8486), on a known path with that query (cases, README)."""
    target = "/v1/rerank?sig=%28x%29&q=a+b%2B%27&e=%e4%zz|[]"
    table = routing_table({"a": "http://unused"}, paths=("/v1/rerank",))
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url}, paths=("/v1/rerank",))
        async with router_in_loop(tmp_path / "t", table) as router:
            assert (await ask(router.address, post(ASK, target))).status == 200
            assert engine.requests[0].target == target


async def test_header_case_order_and_values_pass(tmp_path: Path) -> None:
    """router.md, Streams: bytes pass unchanged, header case and order as far as HTTP allows."""

    async def cased(exchange: Exchange) -> None:
        await exchange.answer(headers=("X-Text: ü", "x-UPPER: B", "Set-Cookie: a=1", "Set-Cookie: b=2"))

    async with (
        FakeEngine(cased) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        sent = ("X-One: 1", "x-tWo:   spaced  ", "Cookie: c=1", "Authorization: Bearer t", "X-One: again")
        answer = await ask(router.address, post(ASK, "/v1/chat/completions", *sent))
        got = [
            pair
            for pair in engine.requests[0].headers
            if pair[0].lower() in ("x-one", "x-two", "cookie", "authorization")
        ]
        assert got == [
            ("X-One", "1"), ("x-tWo", "spaced"), ("Cookie", "c=1"), ("Authorization", "Bearer t"), ("X-One", "again"),
        ]  # fmt: skip
        assert answer.values("Set-Cookie") == ["a=1", "b=2"]
        assert ("x-UPPER", "B") in answer.headers
        assert answer.values("X-Text") == ["ü".encode().decode("latin-1")]
        assert answer.values("Server") == []


async def test_only_the_models_name_is_rewritten(tmp_path: Path) -> None:
    """api.md, Models: servedName is the one value that the router changes in a body."""
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": EngineAt((engine.url,), served_name="org/M-70B")})
        async with router_in_loop(tmp_path / "t", table) as router:
            body = b'{ "messages":[{"role":"user","content":"\\u00e9 \xc3\xa9 model"}],\n"model" : "m", "x":1.0}'
            assert (await ask(router.address, post(body))).status == 200
            assert engine.requests[0].body == body.replace(b'"m"', b'"org/M-70B"')


async def test_response_headers_say_where_it_came_from(tmp_path: Path) -> None:
    """router.md, Seen from outside."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url}, revision=7)) as router,
    ):
        answer = await ask(router.address, post(ASK, "/v1/chat/completions", "x-request-id: mine-1"))
        assert answer.header("x-headrace-engine") == "a"
        assert answer.header("x-headrace-reason") == "weighted"
        assert answer.header("x-headrace-table") == "7"
        assert answer.values("x-request-id") == ["mine-1"]
        assert engine.requests[0].values("x-request-id") == ["mine-1"]
        made = await ask(router.address, post(ASK))
        assert engine.requests[1].values("x-request-id") == [made.header("x-request-id")]


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, "bad_request"),
        (b"NONSENSE\r\n\r\n", 400, "bad_request"),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413, "body_too_large"),
        (post(gzip.compress(b"{}"), "/v1/chat/completions", "Content-Encoding: gzip"), 415, "unsupported_encoding"),
        (post({"model": "nope"}), 404, "model_not_found"),
        (post({"messages": []}), 400, "bad_request"),
        (b"GET /v1/chat/completions HTTP/1.1\r\nHost: r\r\n\r\n", 405, "method_not_allowed"),
        (post({"model": "m", "input": "x", "store": True}, "/v1/responses"), 400, "store_not_supported"),
        (post({"model": "m", "previous_response_id": "r"}, "/v1/responses"), 400, "store_not_supported"),
    ],
    ids=["two lengths", "no http", "huge", "gzip body", "model", "no model", "method", "store", "previous"],
)  # fmt: skip
async def test_refusals_touch_no_engine(tmp_path: Path, data: bytes, status: int, code: str) -> None:
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        answer = await ask(router.address, data)
        assert (answer.status, answer.code) == (status, code)
        assert (
            answer.header(
                "Content-Type",
            )
            == "application/json"
        )
        assert engine.requests == []


async def test_responses_without_store_pass(tmp_path: Path) -> None:
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        body = {"model": "m", "input": "x", "store": False, "previous_response_id": None}
        assert (await ask(router.address, post(body, "/v1/responses"))).status == 200


async def test_chunked_requests_and_expectations(tmp_path: Path) -> None:
    """A chunked upload arrives with its length; 100 Continue is said once, before the body."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
        await client.send(head + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.received = b""
        await client.send(b'4\r\n{"mo\r\n9;x=y\r\ndel":"m"}\r\n0\r\nTrailer: 1\r\n\r\n')
        assert (await client.answer()).status == 200
        arrived = engine.requests[0]
        assert arrived.body == b'{"model":"m"}'
        assert arrived.values("Expect") == arrived.values("Transfer-Encoding") == arrived.values("Trailer") == []


async def test_keep_alive_pipelining_and_the_bound_on_it(tmp_path: Path) -> None:
    """router.md, Streams: reading is never paused while a request runs; more than 64 KiB pipelined: close after it."""
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        if exchange.number == 3:
            await release.wait()
        await answers(exchange)

    async with (
        FakeEngine(held) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        await client.send(post(ASK) + post(ASK))
        assert [(await client.until(b"}}")).count(b"HTTP/1.1 200") for _ in range(1)] == [1]
        await engine.until(lambda: len(engine.requests) == 2)
        client.received = b""
        await client.answer()
        await client.send(post(ASK))
        await engine.until(lambda: len(engine.requests) == 3)
        for _ in range(3):
            await client.send(post({"model": "m", "x": "y" * 40_000}))
        release.set()
        raw = await client.to_end()
        assert raw.count(b"HTTP/1.1 200") == 1
        assert len(engine.requests) == 3
        await until(lambda: in_flight(router) == 0)


async def test_models_come_from_the_table(tmp_path: Path) -> None:
    async with router_in_loop(tmp_path / "t", routing_table({"a": "http://127.0.0.1:9"}, model="org/m-1")) as router:
        listed = await ask(router.address, b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
        assert listed.json()["data"] == [{"id": "org/m-1", "object": "model", "created": 0, "owned_by": "headrace"}]
        one = await ask(router.address, b"GET /v1/models/org/m-1 HTTP/1.1\r\nHost: r\r\n\r\n")
        assert one.json()["id"] == "org/m-1"
        none = await ask(router.address, b"GET /v1/models/x HTTP/1.1\r\nHost: r\r\n\r\n")
        assert (none.status, none.code) == (404, "model_not_found")


async def test_anthropics_path_has_anthropics_errors(tmp_path: Path) -> None:
    async with router_in_loop(tmp_path / "t", routing_table({"a": "http://127.0.0.1:9"})) as router:
        answer = await ask(router.address, post({"model": "z"}, "/v1/messages"))
        assert answer.json()["type"] == "error"
        assert answer.status == 404


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"x-stainless-retry-count: \xc2\xb2", 200),
        (b"x-stainless-retry-count: " + b"9" * 5000, 200),
        (b"X-User: Jos\xc3\xa9", 200),
        (b"X-User: Jos\xe9", 400),
        (b"x-session-id: \xff", 400),
        (b"X-Forwarded-For: \xe9", 400),
    ],
)
async def test_odd_header_bytes_are_no_fault_of_the_router(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, header: bytes, status: int
) -> None:
    """SEC-05: a client's bytes were a 500 and a traceback in the log each."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        data = post({"model": "m"}).replace(b"Host: router", b"Host: router\r\n" + header, 1)
        assert (await ask(router.address, data)).status == status
        assert len(engine.requests) == (status == 200)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("query", ["bytes=%C2%B2", "bytes=" + "9" * 5000, "bytes=-1"])
async def test_odd_questions_to_explain_are_400(tmp_path: Path, query: str) -> None:
    async with router_in_loop(tmp_path / "t", routing_table({"a": "http://127.0.0.1:9"})) as router:
        assert (await get(router.admin_address, f"/debug/explain?model=m&{query}")).status == 400


@pytest.mark.parametrize("sent", [b"", HEAD])
async def test_connections_that_never_ask_are_closed(tmp_path: Path, sent: bytes) -> None:
    """A socket each, for ever. One that asked is left alone."""
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url}), limits=Limits(first_request=0.4)) as router,
        RawClient(router.address) as silent,
        RawClient(router.address) as asking,
    ):
        await asking.send(post(ASK))
        assert (await asking.answer()).status == 200
        await silent.send(sent)
        async with asyncio.timeout(20):
            said = await silent.reader.read()
        assert said.startswith(b"HTTP/1.1 408") if sent else said == b""
        await asking.send(post(ASK))
        assert (await asking.answer()).status == 200


async def test_the_metrics_page_holds_what_is_documented(tmp_path: Path) -> None:
    table = metrics_table()
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        (tmp_path / "heartbeat").write_text("x")
        assert (await ask(router.address, post(ASK))).status == 200
        page = (await get(router.admin_address, "/metrics")).body.decode()
    types = dict(line.split()[2:] for line in page.splitlines() if line.startswith("# TYPE "))
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \|", table, re.MULTILINE)
    of_several = {part.name: part.kind for part in (UP, RESTARTS)}
    assert {name: kind for name, kind, _ in rows} == types | of_several
    labels = {name: set(filter(None, told.split(", "))) for name, _, told in rows}
    for family in text_string_to_metric_families(page):
        name = family.name if family.name in labels else f"{family.name}_total"
        for sample in family.samples:
            assert set(sample.labels) - {"le", "quantile"} == labels[name], sample
