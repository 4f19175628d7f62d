"""Uploads in tiny chunks: a loop that is given to one client for as long as it can send stops every stream."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from headrace_router.listener.reading import CHUNKS_AT_ONCE, Reading
from support.fake_engine import FakeEngine, answers
from support.raw_client import RawClient, post
from support.router_process import router_in_loop
from support.router_table import routing_table

CHUNKS = 600_000


@pytest.mark.stand_ins
async def test_a_flood_of_chunks_leaves_the_others_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCA-02 (https://github.com/sgl-project/sglang/issues/30770): libuv takes up to 32 full reads of one connection
    in a turn of the loop, which is seconds where each is tens of thousands of chunks."""
    loop = asyncio.get_running_loop()
    turn = 0
    large: Counter[int] = Counter()

    def turns() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(turns)

    took = Reading._take

    def take(self: Reading, data: bytes) -> None:
        large[turn] += len(data) > CHUNKS_AT_ONCE
        took(self, data)

    monkeypatch.setattr(Reading, "_take", take)
    body = b'{"model":"m"}'
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        loop.call_soon(turns)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head + b"1\r\n \r\n" * CHUNKS)
        await client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        await client.until(b"completion_tokens")
        assert sum(large.values()) > 5
        assert max(large.values()) == 1
        # And the connection is read on: for requests, and for its end.
        client.received = b""
        await client.send(post({"model": "m"}))
        await client.until(b"completion_tokens")
        assert [len(request.body) for request in engine.requests] == [CHUNKS + len(body), 14]
