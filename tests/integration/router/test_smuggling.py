"""Requests by which a second one is to be smuggled, headers injected, paths confused: against a router, over sockets.

Each is refused by one answer, the connection is closed, and a recording engine sees nothing at all, however the bytes
are cut. The corpus and its sources are in support/hostile_http.py.
"""

import asyncio
import re
from pathlib import Path

import pytest

from support.fake_engine import FakeEngine, answers
from support.hostile_http import CHUNKS, HEADS, HIDDEN, PATHS, Hostile
from support.raw_client import RawClient, post
from support.router_process import router_in_loop
from support.router_table import routing_table

UPLOAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
CUTS = pytest.mark.parametrize("cut", [0, 1, 7, -1], ids=["whole", "first byte", "seventh byte", "last byte"])


async def said_to(url: str, raw: bytes, cut: int) -> bytes:
    """All that the router says until it closes; the bytes may come in two reads."""
    async with RawClient(url) as client:
        try:
            if cut:
                await client.send(raw[:cut])
                await asyncio.sleep(0.002)
            await client.send(raw[cut:])
        except ConnectionError:
            pass
        return await client.to_end()


def told(raw: bytes) -> tuple[list[bytes], bool]:
    """Status of each answer, and whether the last says that the connection closes."""
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", raw), b"\r\nConnection: close\r\n" in raw


@CUTS
@pytest.mark.parametrize("corpus", [HEADS, CHUNKS], ids=["heads", "chunks"])
async def test_what_is_ambiguous_is_refused_once_and_reaches_no_engine(
    tmp_path: Path, corpus: list[Hostile], cut: int
) -> None:
    wrong = {}
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        for each in corpus:
            raw = each.raw if corpus is HEADS else UPLOAD + each.raw + HIDDEN
            statuses, closed = told(await said_to(router.address, raw, cut))
            # Of two faults the one that shows first is told, and how much has come decides which that is.
            right = {b"%d" % each.status, b"414" if len(raw) > 16_384 else b""}
            if len(statuses) != 1 or statuses[0] not in right or not closed or engine.requests:
                wrong[each.name] = (statuses, closed, [request.head for request in engine.requests])
                engine.requests.clear()
        assert wrong == {}


async def test_paths_that_lead_nowhere_reach_no_engine(tmp_path: Path) -> None:
    """SEC-01 (https://github.com/denn-gubsky/loomcycle/pull/854): the check is on the bytes that would be forwarded."""
    wrong = {}
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        for each in PATHS:
            async with RawClient(router.address) as client:
                await client.send(each.raw)
                answer = await client.answer()
                if answer.status != each.status or engine.requests:
                    wrong[each.name] = answer.raw
        assert wrong == {}


async def test_a_body_is_never_read_as_a_request(tmp_path: Path) -> None:
    """The other half: sound messages whose bodies look like requests pass as one request each, on both sides."""
    looks = post({"model": "m"})
    chunked = UPLOAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(looks), looks)
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
    ):
        for raw in (post(looks), chunked, post(looks, "/v1/chat/completions", "Connection: Content-Length")):
            async with RawClient(router.address) as client:
                await client.send(raw + post({"model": "m"}))
                await client.until(b"completion_tokens")
                assert told(client.received)[0] == [b"400", b"200"]
        assert [request.body for request in engine.requests] == [b'{"model": "m"}'] * 3


async def test_engines_see_the_length_of_the_body_that_they_get(tmp_path: Path) -> None:
    """An upload's chunks end here: one length of the router's own, no coding, no trailer."""
    body = b'{"model":"m","x":"' + b"y" * 70_000 + b'"}'
    pieces = b"".join(
        b"%x;a=b\r\n%b\r\n" % (len(piece), piece) for piece in (body[i : i + 999] for i in range(0, len(body), 999))
    )
    async with (
        FakeEngine(answers) as engine,
        router_in_loop(tmp_path / "t", routing_table({"a": engine.url})) as router,
        RawClient(router.address) as client,
    ):
        trailed = UPLOAD.replace(b"\r\n\r\n", b"\r\nTrailer: Content-Length\r\n\r\n")
        await client.send(trailed + pieces + b"0\r\nContent-Length: 5\r\nX-Late: 1\r\n\r\n")
        assert (await client.answer()).status == 200
        (arrived,) = engine.requests
        assert arrived.body == body
        assert arrived.values("Content-Length") == [str(len(body))]
        assert [name for name in ("Transfer-Encoding", "Trailer", "X-Late") if arrived.values(name)] == []
