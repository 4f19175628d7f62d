"""Clients' keys on real sockets: every way a request can come in, real clients, rotation, and no key anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from headrace_api.table import RoutingTable, TableAuth
from headrace_router.server.access_files import AccessFiles
from support.certificates import MountedSecret
from support.fake_engine import FakeEngine, answers, says
from support.raw_client import RawClient, ask, get, post
from support.router_process import reads, ready, router_in_loop, router_process, until
from support.router_table import routing_table, table_bytes

KEY = "hr-canary-client-0123456789"
BODY = {"model": "m", "max_tokens": 1, "messages": []}


def line(name: str, key: str) -> bytes:
    return f"{name} sha256:{hashlib.sha256(key.encode()).hexdigest()}\n".encode()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_bytes(line("alice", KEY))
    return path


def with_key(
    body: dict[str, object] | bytes = b'{"model":"m"}', *lines: str, path: str = "/v1/chat/completions"
) -> bytes:
    return post(body, path, f"Authorization: Bearer {KEY}", *lines)


UNKEYED = {
    "hot": post(BODY),
    "chunked": b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'd\r\n{"model":"m"}\r\n0\r\n\r\n',
    "expects": b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n",
    "1.0": post(BODY, version="1.0"),
    "models": b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n",
    "unknown path": b"GET /secret HTTP/1.1\r\nHost: r\r\n\r\n",
    "wrong": post(BODY, "/v1/chat/completions", "Authorization: Bearer hr-canary-wrong"),
    "a long body": post(b"x" * 300_000),
}


@pytest.mark.parametrize("case", UNKEYED)
async def test_without_a_key_nothing_is_told_or_sent(case: str, tmp_path: Path, keys: Path) -> None:
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=AccessFiles(keys=keys)) as router:
            answer = await ask(router.address, UNKEYED[case])
            assert (answer.status, answer.code) == (401, "invalid_api_key")
            assert (answer.header("WWW-Authenticate") or "").startswith("Bearer")
            assert b"100 Continue" not in answer.raw
            assert b"canary" not in answer.raw
            assert engine.requests == []
            await reads(1, router.admin_address, "headrace_refused_total", code="invalid_api_key")
            # What is beside the clients' listener needs none.
            assert (await ready(router.admin_address))[0] == 200


async def test_with_a_key(tmp_path: Path, keys: Path) -> None:
    """SEC-04 https://github.com/aio-libs/aiohttp/issues/1557, of the router's own keys: they end here."""
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=AccessFiles(keys=keys)) as router:
            for request in (
                with_key(),
                post(BODY, "/v1/messages", f"x-api-key: {KEY}"),
                UNKEYED["chunked"].replace(b"Host: r\r\n", f"Host: r\r\nAuthorization: bearer {KEY}\r\n".encode()),
                post(BODY, "/v1/messages", f"x-api-key: {KEY}", f"Authorization: Bearer {KEY}"),
            ):
                assert (await ask(router.address, request)).status == 200
                head = engine.requests[-1].head.lower()
                assert b"authorization" not in head
                assert b"api-key" not in head
                assert b"canary" not in head
            models = UNKEYED["models"].replace(b"Host: r\r\n", f"Host: r\r\nx-api-key: {KEY}\r\n".encode())
            assert b'"id":"m"' in (await ask(router.address, models)).body


async def test_a_connection_outlives_a_refused_request(tmp_path: Path, keys: Path) -> None:
    """A pipelined wrong key costs the right one behind it nothing."""
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with (
            router_in_loop(tmp_path / "t", table, access=AccessFiles(keys=keys)) as router,
            RawClient(router.address) as client,
        ):
            for _ in range(2):
                await client.send(UNKEYED["models"])
                assert (await client.answer()).status == 401
                await client.send(with_key())
                assert (await client.answer()).status == 200


async def test_real_clients_know_what_is_wrong(tmp_path: Path, keys: Path) -> None:
    said = json.dumps(
        {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hi"}],
         "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    ).encode()  # fmt: skip
    async with FakeEngine(says("200 OK", said)) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=AccessFiles(keys=keys)) as router:
            asked: dict[str, Any] = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
            async with anthropic.AsyncAnthropic(base_url=router.address, api_key=KEY) as good:
                message = await good.messages.create(**asked)
                assert message.content[0].type == "text"
            async with anthropic.AsyncAnthropic(base_url=router.address, api_key="no") as bad:
                with pytest.raises(anthropic.AuthenticationError) as told:
                    await bad.messages.create(**asked)
                assert told.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
            async with openai.AsyncOpenAI(base_url=f"{router.address}/v1", api_key=KEY) as other:
                assert [model.id async for model in other.models.list()] == ["m"]
            async with openai.AsyncOpenAI(base_url=f"{router.address}/v1", api_key="no") as worse:
                with pytest.raises(openai.AuthenticationError) as refused:
                    await worse.chat.completions.create(**asked)
                assert refused.value.code == "invalid_api_key"
            # Nobody tried twice.
            await reads(2, router.admin_address, "headrace_refused_total", code="invalid_api_key")


async def test_keys_rotate_under_load(tmp_path: Path) -> None:
    """Two keys of one name overlap: no request of a client that changes over in between is refused."""
    secret = MountedSecret(tmp_path / "keys")
    secret.put(alice=line("alice", "hr-0"))
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=AccessFiles(keys=secret.folder)) as router:
            now, served, stop = ["hr-0"], [0, 0, 0], asyncio.Event()

            async def load(number: int) -> None:
                async with RawClient(router.address) as client:
                    while not stop.is_set():
                        await client.send(post(BODY, "/v1/chat/completions", f"x-api-key: {now[0]}"))
                        assert (await client.answer()).status == 200
                        served[number] += 1

            async def all_served() -> None:
                before = list(served)
                await until(lambda: all(new > old for new, old in zip(served, before, strict=True)))

            async with asyncio.TaskGroup() as group:
                for number in range(3):
                    group.create_task(load(number))
                for turn in range(1, 6):
                    secret.put(alice=line("alice", f"hr-{turn - 1}") + line("alice", f"hr-{turn}"))
                    await router.access.check()
                    now[0] = f"hr-{turn}"
                    await all_served()
                    secret.put(alice=line("alice", f"hr-{turn}"))
                    await router.access.check()
                    await all_served()
                stop.set()
            old = await ask(router.address, post(BODY, "/v1/chat/completions", "x-api-key: hr-4"))
            assert old.status == 401


async def test_no_keys_no_service(tmp_path: Path, keys: Path) -> None:
    """Open is never an accident: without a file everything is refused, and says why; a broken one changes nothing."""
    given = keys.read_bytes()  # noqa: ASYNC240
    keys.unlink()  # noqa: ASYNC240
    async with FakeEngine(answers) as engine:
        table = routing_table({"a": engine.url})
        async with router_in_loop(tmp_path / "t", table, access=AccessFiles(keys=keys)) as router:
            for request in (with_key(), *UNKEYED.values()):
                answer = await ask(router.address, request)
                assert (answer.status, answer.code) == (503, "no_keys")
            _, detail = await ready(router.admin_address)
            assert detail["access"]["clientKeys"]["keys"] == 0
            assert "does not exist" in detail["access"]["clientKeys"]["error"]
            keys.write_bytes(given)  # noqa: ASYNC240
            await router.access.check()
            assert (await ask(router.address, with_key())).status == 200
            keys.write_bytes(f"alice {KEY}\n".encode())  # noqa: ASYNC240
            await router.access.check()
            assert (await ask(router.address, with_key())).status == 200
            assert (await ask(router.address, post(BODY))).status == 401
            _, detail = await ready(router.admin_address)
            assert "line 1: right would be NAME sha256:HEX" in detail["access"]["clientKeys"]["error"]
            assert KEY not in str(detail)
            assert len(engine.requests) == 2


async def test_no_key_is_told_anywhere(tmp_path: Path, keys: Path) -> None:
    """SEC-05 https://github.com/flop-labs/technocore-chat/issues/130 and kin: neither logs, pages, answers nor engines
    hold a key, right or wrong, ours or an engine's; the name of a client's key stands in the access log."""
    tree = tmp_path / "credentials"
    secret = MountedSecret(tree / "inference" / "secrets" / "key")
    secret.put(token=b"sk-canary-engine")
    broken = MountedSecret(tree / "inference" / "secrets" / "broken")
    broken.put(token=b"sk-canary broken")
    async with FakeEngine(says("503 Service Unavailable")) as a, FakeEngine(answers) as b, FakeEngine(answers) as c:
        path = tmp_path / "table.json"
        path.write_bytes(table_bytes(keyed(routing_table({"a": a.url, "b": b.url, "c": c.url}))))
        out = tmp_path / "out"
        flags = ["--api-keys", str(keys), "--credentials-dir", str(tree), "--access-log", "--metrics", "127.0.0.1:0"]
        with out.open("wb") as stdout:
            async with router_process("--table", str(path), *flags, stdout=stdout) as router:
                metrics = (
                    next(text for text in router.said if "metrics http" in text)
                    .split("metrics ")[1]
                    .split(",")[0]
                    .strip()
                )
                told = b""
                for request in (
                    *(with_key() for _ in range(6)),
                    post(BODY, "/v1/chat/completions?key=canary-query", f"x-api-key: {KEY}"),
                    post(BODY, "/v1/messages", "x-api-key: hr-canary-wrong"),
                    post(BODY, "/v1/messages", "Authorization: Basic Y2FuYXJ5"),
                    with_key(b'{"model":"canary'),
                    b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer hr-canary\x00\r\n\r\n",
                ):
                    told += (await ask(router.url, request)).raw
                keys.write_bytes(f"alice {KEY}\n".encode())  # noqa: ASYNC240
                secret.put(token=b"sk-canary changed")
                await until(lambda: sum("what was in use before stays" in text for text in router.said) >= 2, 60)
                for page in ("/metrics", "/readyz", "/healthz", "/debug/explain?model=m"):
                    told += (await get(router.admin, page)).raw
                told += (await get(metrics, "/metrics")).raw
                for page in ("/readyz", "/debug/explain?model=m", "/"):
                    assert (await get(metrics, page)).status == 404
                router.terminate()
                await router.exit_code()
                told += "".join(router.said).encode()
        log = out.read_bytes()
        assert b"canary" not in told + log
        assert b"Y2FuYXJ5" not in told + log
        lines = [json.loads(text) for text in log.splitlines()]
        assert {one["key"] for one in lines if one["status"] == 200} == {"alice"}
        assert [one.get("key") for one in lines if one["status"] == 401] == [None, None]
        for engine in (a, b):
            assert engine.requests
            assert all(request.values("Authorization") == ["Bearer sk-canary-engine"] for request in engine.requests)
        assert c.requests == []
        assert b"hr-canary" not in b"".join(request.head for request in a.requests + b.requests)


def keyed(table: RoutingTable) -> RoutingTable:
    """a and b have a key, c's is broken."""
    secrets = {"inference/a": "key", "inference/b": "key", "inference/c": "broken"}
    engines = (
        msgspec.structs.replace(engine, auth=TableAuth(secret=secrets[engine.id], key="token"))
        for engine in table.engines
    )
    return msgspec.structs.replace(table, engines=tuple(engines))
