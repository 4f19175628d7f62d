"""The router as a process: start, kill, shutdown, a real client."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import openai
import pytest

from headrace_cli.main import main
from support import router_forker
from support.fake_engine import Exchange, FakeEngine, answers, streams
from support.raw_client import RawClient, ask, get, post
from support.router_process import SERVING, Process, ready, router_process, until_async
from support.router_table import manifest, routing_table, table_bytes

ASK = {"model": "m"}
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
STARTS = 200


async def not_ready(router: Process) -> None:
    """Wait until readiness has fallen."""

    async def fallen() -> bool:
        return (await ready(router.admin))[0] == 503

    await until_async(fallen)


async def revision_is(router: Process, revision: int) -> bool:
    return bool((await ready(router.admin))[1]["tables"][0]["revision"] == revision)


class Replacing:
    """Replaces a table file all the time, as the operator does: written beside it, then renamed."""

    def __init__(self, path: Path, contents: list[bytes]) -> None:
        self._path = path
        self._contents = contents
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        beside = self._path.with_name(".new")
        while not self._stop.is_set():
            for content in self._contents:
                beside.write_bytes(content)
                beside.replace(self._path)
            time.sleep(0.001)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


async def test_killed_200_times_while_its_table_is_replaced_it_starts_with_a_whole_one(tmp_path: Path) -> None:
    """Issue 3, Must show: kill -9 of a router while a table is being replaced, 200 times."""
    path = tmp_path / "t.yaml"
    engines = {f"e{n}": f"http://127.0.0.1:{n + 1}" for n in range(40)}
    tables = [routing_table(engines, revision=1, uid=f"u{n}") for n in range(2)]
    path.write_text(manifest(tables[0]))
    arguments = ["--table", str(path), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    forker = await asyncio.create_subprocess_exec(
        sys.executable,
        router_forker.__file__,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert forker.stdin is not None
    assert forker.stdout is not None
    assert forker.stderr is not None
    whole = 0
    try:
        with Replacing(path, [manifest(table).encode() for table in tables]):
            for start in range(STARTS):
                forker.stdin.write(b"start\n")
                pid = int(await asyncio.wait_for(forker.stdout.readline(), 60))
                try:
                    while (serving := SERVING.search((await forker.stderr.readline()).decode())) is None:
                        assert forker.returncode is None
                    # Every fourth is asked; the others die as soon as they serve, in the middle of a reload.
                    if start % 4 == 0:
                        status, detail = await ready(serving[2])
                        assert (status, detail["tables"][0]["uid"] in ("u0", "u1")) == (200, True), detail
                        assert detail["tables"][0]["error"] is None
                        listed = await get(serving[1], "/v1/models")
                        assert b'"id":"m"' in listed.body
                        whole += 1
                finally:
                    os.kill(pid, signal.SIGKILL)
    finally:
        forker.kill()
        await forker.communicate()
    assert whole == STARTS // 4


async def test_a_rolled_router_serves_on_then_ends_with_0(tmp_path: Path) -> None:
    """SHU-01 (https://github.com/mnfst/llm-gateway/pull/2326): from SIGTERM on /readyz is 503 and /healthz 200; new
    connections are served for the delay, with Connection: close; then the listener closes; exit code 0."""
    path = tmp_path / "t.json"
    async with FakeEngine(answers) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        async with (
            router_process("--table", str(path), "--drain-delay", "2", "--grace", "5") as router,
            RawClient(router.url) as idle,
        ):
            await idle.send(post(ASK))
            assert (await idle.answer()).status == 200
            assert (await ready(router.admin))[0] == 200
            router.terminate()
            await not_ready(router)
            served = 0
            try:
                while True:
                    answer = await ask(router.url, post(ASK))
                    assert (answer.status, answer.header("Connection")) == (200, "close")
                    served += 1
                    if served % 10 == 1:
                        async with RawClient(router.admin) as admin:
                            await admin.send(b"GET /healthz HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n")
                            if not (said := await admin.to_end()):
                                break  # the process has just ended
                            assert said.startswith(b"HTTP/1.1 200 ")
            except (ConnectionRefusedError, ConnectionResetError):
                pass
            assert served >= 10
            await idle.to_end()
            assert await router.exit_code() == 0
            told = "".join(router.said)
            assert "Traceback" not in told, told
            assert "destroyed" not in told, told


async def test_streams_have_a_grace_and_then_an_error_event(tmp_path: Path) -> None:
    """SHU-02 (https://github.com/aio-libs/aiohttp/issues/3638), scaled: one stream ends in the grace, one never; a
    second SIGTERM changes nothing; a request that no engine answers gets 503 with Retry-After; engines are closed."""
    path = tmp_path / "t.json"
    closed = asyncio.Event()
    finish = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if b"silent" in exchange.request.body:
            await exchange.closed_by_router()
            return
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        if b"ends" in exchange.request.body:
            await finish.wait()
            await exchange.end_chunks()
            return
        await exchange.closed_by_router()
        closed.set()

    async with FakeEngine(script) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        async with router_process("--table", str(path), "--drain-delay", "0", "--grace", "2") as router:
            bodies = ({"x": "ends"}, {"x": "never"}, {"x": "silent"})
            asking = [
                asyncio.create_task(ask(router.url, post({"model": "m", "stream": True, **body}))) for body in bodies
            ]
            await engine.until(lambda: len(engine.requests) == 3)
            router.terminate()
            await not_ready(router)
            router.terminate()
            finish.set()
            ends, never, silent = await asyncio.gather(*asking)
            assert (ends.complete, ends.body) == (True, EVENT)
            assert never.body.startswith(EVENT)
            assert b'"code":"shutting_down"' in never.body
            assert not never.complete
            assert (silent.status, silent.code) == (503, "shutting_down")
            assert int(silent.header("Retry-After") or 0) >= 1
            await asyncio.wait_for(closed.wait(), 20)
            assert await router.exit_code() == 0
            said = "".join(router.said)
            assert "Traceback" not in said, said
            assert "destroyed" not in said, said


async def test_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    async with router_process("--table", str(tmp_path / "none"), "--drain-delay", "60") as router:
        router.process.send_signal(signal.SIGINT)
        assert await router.exit_code() == 0


async def test_a_taken_port_is_said_with_exit_3(tmp_path: Path) -> None:
    async with router_process("--table", str(tmp_path / "none")) as first:
        port = first.url.rpartition(":")[2]
        with pytest.raises(AssertionError, match=r"can't listen on 127\.0\.0\.1"):
            async with router_process("--table", str(tmp_path / "none"), "--listen", f"127.0.0.1:{port}"):
                pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "nowhere"], "--listen nowhere"),
        (["--admin", "127.0.0.1:99999"], "--admin 127.0.0.1:99999"),
        (["--grace", "-1"], "--grace -1"),
        (["--drain-delay", "nan"], "--drain-delay nan"),
        (["--table", "x"], "stands twice"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_arguments_exit_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["router", "--table", "x", *arguments]) == 2
    assert said in capsys.readouterr().err


CHAT = b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
CHAT += b'"message":{"role":"assistant","content":"Hello"}}],'
CHAT += b'"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'


def delta(content: str, finish: str = "null") -> bytes:
    return (
        '{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        f'"delta":{{"content":"{content}"}},"finish_reason":{finish}}}]}}'
    ).encode()


async def chat(exchange: Exchange) -> None:
    if b'"stream":true' in exchange.request.body.replace(b" ", b""):
        await streams(delta("Hel"), delta("lo", '"stop"'))(exchange)
    else:
        await exchange.answer(CHAT)


async def openai_client(router: Process, **settings: object) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", **settings)  # type: ignore[arg-type]


async def test_the_openai_client_works_unchanged(tmp_path: Path) -> None:
    """Issue 3, Must show: the openai Python client, streaming and not, works through the router unchanged."""
    path = tmp_path / "t.json"
    async with FakeEngine(chat) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        async with (
            router_process("--table", str(path), "--drain-delay", "0") as router,
            await openai_client(router) as client,
        ):
            whole = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
            assert whole.choices[0].message.content == "Hello"
            pieces = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            text = "".join([piece.choices[0].delta.content or "" async for piece in pieces])
            assert text == "Hello"
            assert [model.id async for model in client.models.list()] == ["m"]
            assert (await client.models.retrieve("m")).id == "m"
            with pytest.raises(openai.NotFoundError, match="nope"):
                await client.chat.completions.create(model="nope", messages=[])
            assert engine.requests[0].values("Authorization") == ["Bearer none"]


async def test_the_openai_client_obeys_refusals_and_sees_cuts(tmp_path: Path) -> None:
    """SCA-04: x-should-retry: false is obeyed. STR-01: a data: error frame becomes the client's own error."""
    from headrace_api.table import ShedShare

    async def cut(exchange: Exchange) -> None:
        await exchange.start_sse()
        await exchange.chunk(b"data: " + delta("Hel") + b"\n\n")
        exchange.close()

    path = tmp_path / "t.json"
    async with FakeEngine(cut) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        async with (
            router_process("--table", str(path), "--drain-delay", "0") as router,
            await openai_client(router, max_retries=5) as client,
        ):
            got: list[str | None] = []
            with pytest.raises(openai.APIError, match="broke off"):
                pieces = await client.chat.completions.create(model="m", messages=[], stream=True)
                async for piece in pieces:
                    got += [piece.choices[0].delta.content]
            assert got == ["Hel"]
            shed = routing_table({"a": engine.url}, revision=2, shed=(ShedShare(priority="default", share=1.0),))
            path.write_bytes(table_bytes(shed))
            await until_async(lambda: revision_is(router, 2))
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(model="m", messages=[])
            page = (await get(router.admin, "/metrics")).body
            assert b'headrace_refused_total{code="shed"} 1.0' in page


async def test_the_access_log_is_one_json_line_a_request(tmp_path: Path) -> None:
    """router.md, Seen from outside: off by default, JSON on stdout when asked for."""
    path, log = tmp_path / "t.json", tmp_path / "log"
    async with FakeEngine(answers) as engine:
        path.write_bytes(table_bytes(routing_table({"a": engine.url})))
        with log.open("wb") as stdout:
            async with router_process(
                "--table", str(path), "--drain-delay", "0", "--access-log", stdout=stdout
            ) as router:
                assert (await ask(router.url, post(ASK, "/v1/chat/completions", "x-request-id: r1"))).status == 200
                assert (await ask(router.url, post({"model": "z\n{}"}))).status == 404
                router.terminate()
                assert await router.exit_code() == 0
    first, second = [json.loads(line) for line in log.read_text().splitlines()]
    assert (first["requestId"], first["engine"], first["outcome"]) == ("r1", "inference/a", "ok")
    assert (second["status"], second["code"], second["engine"]) == (404, "model_not_found", None)
