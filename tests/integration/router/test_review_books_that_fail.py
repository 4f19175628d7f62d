"""A fault in what only counts costs no client anything: neither its answer nor its connection."""

from pathlib import Path

import pytest

from headrace_router.proxy.waiting import Waiting
from headrace_router.telemetry.accounting import Account
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import RawClient, post
from support.router_process import in_flight, router_in_loop, until
from support.router_table import routing_table

END = b"0\r\n\r\n"


async def streams(exchange: Exchange) -> None:
    await exchange.start_sse()
    await exchange.chunk(EVENT)
    await exchange.end_chunks()


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(("owner", "method"), [(Account, "answered"), (Account, "attempted"), (Account, "close")])
@pytest.mark.parametrize("script", [streams, answers], ids=["stream", "unary"])
async def test_an_answer_ends_once_and_the_connection_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, script: object
) -> None:
    """STR-02 (https://github.com/aio-libs/aiohttp/issues/3966): an exception in the router's own hook, here behind the
    last event. Nothing is written behind an end, and nobody is left waiting."""
    marker = END if script is streams else b"completion_tokens"
    async with (
        FakeEngine(script) as engine,  # type: ignore[arg-type]
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        monkeypatch.setattr(owner, method, broken)
        for _ in range(3):
            client.received = b""
            await client.send(post({"model": "m", "stream": True}))
            answer = await client.until(marker)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.count(b"HTTP/1.1 ") == 1
            assert script is answers or answer.endswith(END)
        await until(lambda: in_flight(router) == 0)
        assert not router.proxy.running
        assert router.proxy.memory.held == 0


async def test_who_waits_for_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        monkeypatch.setattr(Waiting, "wake", broken)
        router.waiting.count = 1
        try:
            for _ in range(2):
                client.received = b""
                await client.send(post({"model": "m"}))
                await client.until(b"completion_tokens")
        finally:
            router.waiting.count = 0
            monkeypatch.undo()
