"""No request leaves a reference cycle behind, however it ends: what the router's pauses (pauses.py) rely on.

The views of tables have their test in unit/router_core/test_view.py.
"""

from __future__ import annotations

import contextlib
import gc
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from headrace_router.server.access_files import AccessFiles
from headrace_router.server.server import Router
from headrace_router.upstream.port import Address, NotSent
from support.certificates import Authority, trusted_engines
from support.fake_engine import EVENT, Exchange, FakeEngine
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, router_in_loop, until
from support.router_table import routing_table

TIMES = 3
NOBODY = "http://127.0.0.1:1"
BODY = b'{"model":"m"}'
ASK = post(BODY)
EXPECTS = post(BODY, "/v1/chat/completions", "Expect: 100-continue")
CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
    b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"model":"m"}\r\n0\r\n\r\n'
)


def done(how: str) -> bytes:
    """A request with which the engine does so."""
    return post(BODY, "/v1/chat/completions", f"X-How: {how}")


# What is sent, and the answer's status.
ANSWERED = {
    "unary": (ASK, 200),
    "streamed": (done("streams"), 200),
    "chunked": (CHUNKED, 200),
    "Expect": (EXPECTS, 200),
    "HTTP/1.0": (post(BODY, version="1.0"), 200),
    "models": (b"GET /v1/models HTTP/1.1\r\nHost: r\r\n\r\n", 200),
    "no such model": (post({"model": "none"}), 404),
    "no such path": (post(BODY, "/none"), 404),
    "no JSON": (post(b"{"), 400),
    "no JSON, chunked": (CHUNKED.replace(b"}", b"{"), 400),
    "no head": (b"junk\r\n\r\n", 400),
    "no chunks": (CHUNKED.replace(b"\r\nd\r\n", b"\r\nx\r\n"), 400),
    "too large": (post(b"x").replace(b"Length: 1", b"Length: 1%b" % (b"0" * 12)), 413),
    "the engine drops it": (done("drops"), 502),
    "the stream is cut": (done("cuts"), 200),
    "the engine says 503": (done("fails"), 503),
}
# What is sent, and what the client waits for before it leaves.
LEFT = {
    "before a body": (EXPECTS[: -len(BODY)], b"100 Continue"),
    "in a body": (EXPECTS[:-1], b"100 Continue"),
    "in a stream": (done("hangs"), EVENT),
}


async def script(exchange: Exchange) -> None:
    """See ``done``."""
    how = "".join(exchange.request.values("x-how"))
    if how == "fails":
        await exchange.answer(status="503 No")
    elif how == "drops":
        exchange.reset()
    elif how:
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        if how == "hangs":
            await exchange.closed_by_router()
        elif how == "cuts":
            exchange.reset()
        else:
            await exchange.end_chunks()
    else:
        await exchange.answer()


@contextlib.asynccontextmanager
async def serving(folder: Path, tls: bool) -> AsyncIterator[tuple[Router, ssl.SSLContext | None]]:
    """A router before such an engine, plain or with TLS on both sides; what its clients need."""
    if not tls:
        async with (
            FakeEngine(script) as engine,
            router_in_loop(folder / "t", routing_table({"a": engine.url})) as router,
        ):
            yield router, None
        return
    authority = Authority()
    issued = authority.issue("127.0.0.1")
    async with FakeEngine(script, tls=issued.server()) as engine:
        access = AccessFiles(issued.write(folder / "tls"))
        table = routing_table({"a": engine.url})
        table, access = trusted_engines(table, access, authority, folder / "credentials")
        async with router_in_loop(folder / "t", table, access=access) as router:
            yield router, authority.client()


async def only_collected(router: Router, case: Callable[[], Awaitable[None]]) -> Counter[str]:
    """What only a collection finds of what the case leaves behind, by type. Made once before, for what is kept."""

    async def over() -> None:
        await until(lambda: not router._listener.connections and not in_flight(router))

    await case()
    await over()
    gc.unfreeze()
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            await case()
        await over()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def answered(data: bytes, status: int) -> Callable[[Router, ssl.SSLContext | None], Awaitable[None]]:
    async def case(router: Router, context: ssl.SSLContext | None) -> None:
        assert (await ask(router.address, data, tls=context)).status == status

    return case


def left(data: bytes, marker: bytes) -> Callable[[Router, ssl.SSLContext | None], Awaitable[None]]:
    async def case(router: Router, context: ssl.SSLContext | None) -> None:
        async with RawClient(router.address, context) as client:
            await client.send(data)
            await client.until(marker)

    return case


# In this order: after the engine's faults, the last of those answered, it may be left out for a while.
CASES = {name: left(*how) for name, how in LEFT.items()} | {name: answered(*how) for name, how in ANSWERED.items()}


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
async def test_no_request_leaves_a_cycle(tmp_path: Path, tls: bool) -> None:
    found = {}
    async with serving(tmp_path, tls) as (router, context):
        for name, case in CASES.items():
            found[name] = await only_collected(router, partial(case, router, context))
    assert found == {name: Counter() for name in CASES}


async def test_one_connection_and_engines_that_cannot_be_reached_leave_no_cycle(tmp_path: Path) -> None:
    async with router_in_loop(tmp_path / "t", routing_table({"a": NOBODY})) as router:

        async def several() -> None:
            async with RawClient(router.address) as client:
                for data in (ASK, CHUNKED, ASK):
                    await client.send(data)
                    assert (await client.answer()).status in (502, 503)

        async def probed() -> None:
            with pytest.raises(NotSent):
                await router.upstream.fetch(Address("a", NOBODY), "/health", 20.0)

        assert not await only_collected(router, several)
        assert not await only_collected(router, probed)
