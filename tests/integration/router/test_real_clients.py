"""Real clients through the router, unchanged: each does the same directly at the engine and through the router, and the
engine gets the same bytes and the client the same answer (issue 5, Must show: Real clients), be the listener plain or
TLS."""

import asyncio
import base64
import http.client
import json
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import msgspec
import openai
import pytest

from headrace_router.server.access_files import AccessFiles
from headrace_router.server.server import Router
from support.certificates import Authority, Issued, trusted_engines
from support.fake_engine import Arrived, FakeEngine
from support.model_server import model_server
from support.raw_client import RawClient, post
from support.router_process import in_flight, router_in_loop
from support.router_table import routing_table

PROMPT = "Größe " * (2 * 2**20 // 7)
IMAGE = base64.b64encode(bytes(range(256)) * 2000).decode()
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
OPENAI_TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": WEATHER}
# Of one hop, or said by the router.
NOT_PASSED = {"host", "connection", "x-forwarded-for", "x-request-id", "expect", "transfer-encoding"}


EVERY_FORM = pytest.mark.parametrize("form", ["plain", "tls", "tls on both sides"])


@pytest.fixture(params=["plain", "tls"])
def form(request: pytest.FixtureRequest) -> str:
    """How clients reach the router, and where a test says so the router its engine."""
    return str(request.param)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    """Of the router and the engine."""
    return authority.issue("127.0.0.1")


@pytest.fixture(scope="module")
def trust(authority: Authority) -> ssl.SSLContext:
    """What clients believe."""
    return authority.client()


@pytest.fixture(scope="module")
def authorities(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same for curl."""
    path = tmp_path_factory.mktemp("curl") / "ca.pem"
    path.write_bytes(authority.cert)
    return "--cacert", str(path)


@pytest.fixture
async def engine(form: str, issued: Issued) -> AsyncIterator[FakeEngine]:
    async with FakeEngine(model_server, tls=issued.server() if form == "tls on both sides" else None) as made:
        yield made


@pytest.fixture
async def router(
    tmp_path: Path, engine: FakeEngine, form: str, authority: Authority, issued: Issued
) -> AsyncIterator[Router]:
    table = routing_table({"a": engine.url})
    able = tuple(msgspec.structs.replace(each, capabilities=("tools", "vision")) for each in table.engines)
    table = msgspec.structs.replace(table, engines=able)
    access = AccessFiles() if form == "plain" else AccessFiles(tls=issued.write(tmp_path / "tls"))
    if engine.tls is not None:
        table, access = trusted_engines(table, access, authority, tmp_path / "credentials")
    async with router_in_loop(tmp_path / "t", table, access=access) as made:
        assert made.address.startswith("http:" if form == "plain" else "https:")
        yield made
        assert in_flight(made) == 0


def said(arrived: Arrived) -> tuple[str, list[tuple[str, str]], bytes]:
    """What an engine may not be able to tell from the client itself."""
    kept = [(name, value) for name, value in arrived.headers if name.lower() not in NOT_PASSED]
    length = [pair for pair in kept if pair[0].lower() == "content-length"]
    rest = [pair for pair in kept if pair[0].lower() != "content-length"]
    return arrived.target, rest + length, arrived.body


async def same(engine: FakeEngine, router: Router, ask: Callable[[str], Awaitable[Any]]) -> Any:
    """The answer of a client that asks both ways, after comparing all there is to compare."""
    directly = await ask(engine.url)
    routed = await ask(router.address)
    first, second = engine.requests
    assert said(first) == said(second)
    assert directly == routed
    return routed


def chat(content: object, **more: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


OPENAI_CONTENTS: dict[str, object] = {
    "short": "Hi",
    "2 MiB": PROMPT,
    "image": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
    ],
}
ANTHROPIC_CONTENTS: dict[str, object] = {
    "short": "Hi",
    "2 MiB": PROMPT,
    "image": [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
    ],
}


def openai_at(url: str, trust: ssl.SSLContext) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(verify=trust)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0, http_client=http)


def anthropic_at(url: str, trust: ssl.SSLContext) -> anthropic.AsyncAnthropic:
    http = anthropic.DefaultAsyncHttpxClient(verify=trust)
    return anthropic.AsyncAnthropic(base_url=url, api_key="secret", max_retries=0, http_client=http)


@EVERY_FORM
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("content", sorted(OPENAI_CONTENTS))
async def test_openai_chats(
    engine: FakeEngine, router: Router, trust: ssl.SSLContext, content: str, stream: bool
) -> None:
    async def ask(url: str) -> str:
        async with openai_at(url, trust) as client:
            answer = await client.chat.completions.create(**chat(OPENAI_CONTENTS[content], stream=stream))
            if not stream:
                return str(answer.choices[0].message.content)
            return "".join([piece.choices[0].delta.content or "" async for piece in answer])

    assert await same(engine, router, ask) == "Grüß dich"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_openai_tool_calls(engine: FakeEngine, router: Router, trust: ssl.SSLContext, stream: bool) -> None:
    async def ask(url: str) -> object:
        async with openai_at(url, trust) as client:
            answer = await client.chat.completions.create(**chat("Weather?", stream=stream, tools=[OPENAI_TOOL]))
            if not stream:
                return json.loads(answer.choices[0].message.tool_calls[0].function.arguments)
            pieces = [piece async for piece in answer]
            calls = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or ()]
            return json.loads("".join(call.function.arguments for call in calls))

    assert await same(engine, router, ask) == {"city": "Zürich"}


@pytest.mark.parametrize("texts", ["one", ["one", "two", PROMPT[:400_000]]], ids=["one", "list"])
async def test_openai_embeddings(
    engine: FakeEngine, router: Router, trust: ssl.SSLContext, texts: str | list[str]
) -> None:
    async def ask(url: str) -> list[float]:
        async with openai_at(url, trust) as client:
            return (await client.embeddings.create(model="m", input=texts)).data[0].embedding

    assert await same(engine, router, ask) == [0.5, -1.25, 3.0]


async def test_openai_responses_without_store(engine: FakeEngine, router: Router, trust: ssl.SSLContext) -> None:
    async def ask(url: str) -> str:
        async with openai_at(url, trust) as client:
            return (await client.responses.create(model="m", input="Hi", store=False)).output_text

    assert await same(engine, router, ask) == "Grüß dich"


@EVERY_FORM
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("content", sorted(ANTHROPIC_CONTENTS))
async def test_anthropic_messages(
    engine: FakeEngine, router: Router, trust: ssl.SSLContext, content: str, stream: bool
) -> None:
    async def ask(url: str) -> str:
        wanted: dict[str, Any] = chat(ANTHROPIC_CONTENTS[content], max_tokens=9)
        async with anthropic_at(url, trust) as client:
            if not stream:
                block = (await client.messages.create(**wanted)).content[0]
                assert block.type == "text"
                return block.text
            async with client.messages.stream(**wanted) as answer:
                return "".join([text async for text in answer.text_stream])

    assert await same(engine, router, ask) == "Grüß dich"
    assert "secret" in str(engine.requests[1].headers)


async def test_anthropic_tool_use(engine: FakeEngine, router: Router, trust: ssl.SSLContext) -> None:
    async def ask(url: str) -> object:
        async with anthropic_at(url, trust) as client:
            block = (await client.messages.create(**chat("Weather?", max_tokens=9, tools=[ANTHROPIC_TOOL]))).content[0]
            assert block.type == "tool_use"
            return block.input

    assert await same(engine, router, ask) == {"city": "Zürich"}


async def test_both_clients_understand_refusals(router: Router, trust: ssl.SSLContext) -> None:
    async with openai_at(router.address, trust) as client:
        with pytest.raises(openai.NotFoundError, match="no routing table has a model"):
            await client.chat.completions.create(**chat("Hi") | {"model": "none"})
    async with anthropic_at(router.address, trust) as client_:
        with pytest.raises(anthropic.NotFoundError, match="no routing table has a model"):
            await client_.messages.create(**chat("Hi", max_tokens=9) | {"model": "none"})
        with pytest.raises(anthropic.BadRequestError):
            await client_.messages.create(**chat("Hi", max_tokens=9) | {"model": ""})


async def curl(*arguments: str) -> bytes:
    """What curl prints; it must be content."""
    found = shutil.which("curl")
    assert found is not None, "curl is needed"
    process = await asyncio.create_subprocess_exec(
        found, "--silent", "--show-error", "--fail", "--max-time", "20", *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out


@pytest.mark.parametrize(
    "how",
    [
        (),
        ("--http1.0",),
        ("--http1.0", "--header", "Connection: keep-alive"),
        ("--header", "Expect: 100-continue"),
        ("--header", "Transfer-Encoding: chunked"),
        ("--header", "Transfer-Encoding: chunked", "--header", "Expect: 100-continue"),
        ("--header", "Accept-Encoding: gzip", "--http2"),
    ],
    ids=["plain", "1.0", "1.0 kept", "expect", "chunked", "chunked and expect", "offers HTTP/2"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("content", ["short", "2 MiB"])
async def test_curl(
    tmp_path: Path,
    engine: FakeEngine,
    router: Router,
    authorities: tuple[str, str],
    how: tuple[str, ...],
    stream: bool,
    content: str,
) -> None:
    body = json.dumps(chat(OPENAI_CONTENTS[content], stream=stream), ensure_ascii=False).encode()
    (tmp_path / "body").write_bytes(body)
    sent = (*authorities, "--data-binary", f"@{tmp_path}/body", "--header", "Content-Type: application/json")
    # To an engine that knows no Expect curl would wait a second with a large body.
    directly = await curl("--header", "Expect:", *sent, f"{engine.url}/v1/chat/completions")
    routed = await curl(*how, *sent, f"{router.address}/v1/chat/completions")
    assert routed == directly
    assert [request.body == body for request in engine.requests] == [True, True]
    assert engine.requests[1].values("Content-Length") == [str(len(body))]


async def test_curl_asks_on_with_one_connection(
    tmp_path: Path, engine: FakeEngine, router: Router, authorities: tuple[str, str]
) -> None:
    """Hot, slow, refused and hot again on one connection."""
    (tmp_path / "body").write_bytes(json.dumps(chat("Hi")).encode())
    url = f"{router.address}/v1/chat/completions"
    one = (
        *authorities,
        "--data-binary",
        f"@{tmp_path}/body",
        "--write-out",
        "%{http_code} %{num_connects}\n",
        "--output",
        "/dev/null",
    )
    process = await asyncio.create_subprocess_exec(
        "curl", "--silent", "--max-time", "20",
        *one, url, "--next", *one, "--header", "Transfer-Encoding: chunked", url,
        "--next", *one, f"{router.address}/nowhere",
        "--next", "--head", *authorities, *one[4:], f"{router.address}/v1/models",
        "--next", *one, url,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert out.decode().split("\n")[:-1] == ["200 1", "200 0", "404 0", "200 0", "200 0"]
    assert len(engine.requests) == 3


async def test_pythons_own_client(engine: FakeEngine, router: Router, trust: ssl.SSLContext) -> None:
    """It writes head and body apart, keeps its connection, and sends iterables in chunks."""
    bodies = [json.dumps(chat(text)).encode() for text in ("Hi", PROMPT)]

    def ask() -> list[bytes]:
        to = urlsplit(router.address)
        plain = http.client.HTTPConnection(to.netloc, timeout=20)
        client = http.client.HTTPSConnection(to.netloc, timeout=20, context=trust) if to.scheme == "https" else plain
        got = []
        for body in (*bodies, iter([bodies[0][:7], bodies[0][7:]])):
            client.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            got.append(client.getresponse().read())
        client.close()
        return got

    answers = await asyncio.to_thread(ask)
    assert [json.loads(answer)["choices"][0]["message"]["content"] for answer in answers] == ["Grüß dich"] * 3
    assert [request.body for request in engine.requests] == [*bodies, bodies[0]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_plain_http_1_0_client(engine: FakeEngine, router: Router, trust: ssl.SSLContext, stream: bool) -> None:
    """It says no Host, knows no chunks, and reads until the connection ends, which over TLS must be TLS's own end."""
    body = json.dumps(chat("Hi", stream=stream)).encode()

    def ask() -> bytes:
        to = urlsplit(router.address)
        client = socket.create_connection((to.hostname, to.port), timeout=20)
        if to.scheme == "https":
            client = trust.wrap_socket(client, server_hostname=to.hostname, suppress_ragged_eofs=False)
        with client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body))
            client.sendall(body)
            return b"".join(iter(lambda: client.recv(4096), b""))

    head, _, content = (await asyncio.to_thread(ask)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"chunked" not in head
    if stream:
        assert content.startswith(b"data: {")
        assert content.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(content)["choices"][0]["message"]["content"] == "Grüß dich"
    assert engine.requests[0].body == body


async def test_pipelined_requests_of_all_kinds(
    engine: FakeEngine, router: Router, form: str, trust: ssl.SSLContext
) -> None:
    """Answered in order, whichever way each goes."""
    paths = ["/v1/chat/completions", "/v1/embeddings", "/v1/messages", "/v1/responses"] * 3
    chunked = b"POST %b HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    body = b'{"model":"m","input":"x"}'
    raw = b"".join(
        post(body, path) if number % 2 else chunked % (path.encode(), len(body), body)
        for number, path in enumerate(paths)
    )
    async with RawClient(router.address, None if form == "plain" else trust) as client:
        await client.send(raw + b"GET /v1/models HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n")
        said_ = await client.to_end()
    kinds = {"/v1/chat/completions": b'"chat.completion"', "/v1/embeddings": b'"embedding"',
             "/v1/messages": b'"type":"message","role"', "/v1/responses": b'"object":"response"'}  # fmt: skip
    answers = said_.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert len(answers) == len(paths) + 1
    assert all(kinds[path] in answer for path, answer in zip(paths, answers, strict=False))
    assert [request.target for request in engine.requests] == paths
    assert all(request.body == body for request in engine.requests)
