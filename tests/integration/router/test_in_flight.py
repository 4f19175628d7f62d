"""In-flight counts end at 0 whichever way a request ends."""

import asyncio
import socket
from pathlib import Path

from headrace_api.table import ShedShare, TableEjection, TablePriority, TableRetry, TableTimeouts
from support.fake_engine import Exchange, FakeEngine
from support.raw_client import RawClient, ask, post
from support.router_process import in_flight, metric, reads, router_in_loop, until
from support.router_table import EngineAt, routing_table, table_bytes

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
WAYS = ("ok", "error", "no head", "gone early", "gone in stream", "cut", "shed", "late", "refused", "head only")
EACH = 30


async def script(exchange: Exchange) -> None:
    """Ends as the request's body says."""
    body = exchange.request.body
    if b'"ok"' in body:
        await exchange.answer()
    elif b'"error"' in body:
        await exchange.answer(b"{}", "500 Oops")
    elif b'"no head"' in body:
        exchange.close()
    elif b'"late"' in body or b'"gone early"' in body:
        await exchange.closed_by_router()
    else:
        await exchange.start_sse()
        if b'"head only"' not in body:
            await exchange.chunk(EVENT)
        if b'"gone in stream"' in body:
            await exchange.closed_by_router()
        exchange.close()


async def end_in(way: str, url: str) -> None:
    """One request that ends in one way."""
    model = way if way in ("refused", "late") else "m"
    priority = "X-Headrace-Priority: " + ("batch" if way == "shed" else "interactive")
    data = post({"model": model, "stream": True, "way": way}, "/v1/chat/completions", priority)
    if not way.startswith("gone"):
        await ask(url, data, 60)
        return
    async with RawClient(url) as client:
        await client.send(data)
        if way == "gone in stream":
            await client.until(EVENT, 60)
        else:
            await asyncio.sleep(0.01)


async def test_counts_end_at_zero_over_every_end_and_a_reload(tmp_path: Path) -> None:
    """HAS-04 (https://github.com/kubeai-project/kubeai/issues/447): 300 requests that end in each way while tables
    that drop B and bring it back are applied and 50 streams run; a stream counts until its last byte; never negative;
    B starts at 0 again."""
    path = tmp_path / "t.json"
    release = asyncio.Event()

    async def long(exchange: Exchange) -> None:
        if b'"long"' not in exchange.request.body:
            await script(exchange)
            return
        await exchange.start_sse()
        await exchange.chunk(EVENT)
        await release.wait()
        await exchange.end_chunks()

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with FakeEngine(long) as a, FakeEngine(long) as b:
            engines = {"a": EngineAt((a.url,)), "b": EngineAt((b.url,))}
            shared = {
                "priorities": (TablePriority(name="interactive", value=100), TablePriority(name="batch", value=1)),
                "shed": (ShedShare(priority="batch", share=1.0),),
                "retry": TableRetry(max_attempts=2, percent=100.0, min_per_second=1000.0),
                "ejection": TableEjection(consecutive=1000),
            }
            refused = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            other = tmp_path / "other.json"
            other.write_bytes(table_bytes(routing_table({"r": refused}, model="refused", policy="other", **shared)))
            soon = TableTimeouts(connect=10.0, first_byte=0.2, idle=30.0, send=30.0, unary=0.0)
            late = tmp_path / "late.json"
            late.write_bytes(
                table_bytes(routing_table({"l": a.url}, model="late", policy="late", timeouts=soon, **shared))
            )
            async with router_in_loop(path, routing_table(engines, **shared), more=(other, late)) as router:
                state_of_b = router.selector.view.engines["inference/b"].state
                body = post({"model": "m", "stream": True, "way": "long"}, "/v1/chat/completions",
                            "X-Headrace-Priority: interactive")  # fmt: skip
                streaming = [asyncio.create_task(ask(router.address, body, 60)) for _ in range(50)]
                await until(lambda: len(a.requests) + len(b.requests) == 50)
                assert in_flight(router) == 50

                async def apply(revision: int, which: dict[str, EngineAt]) -> None:
                    data = table_bytes(routing_table(which, revision=revision, **shared))
                    await asyncio.to_thread(path.write_bytes, data)
                    await until(lambda: router.selector.view.policies[0].table.identity.revision == revision)

                ending = [asyncio.create_task(end_in(way, router.address)) for way in WAYS for _ in range(EACH)]
                await apply(2, {"a": engines["a"]})
                await apply(3, engines)
                new_b = router.selector.view.engines["inference/b"].state
                assert new_b is not state_of_b
                await asyncio.gather(*ending)
                assert router.selector.view.engines["inference/a"].state.in_flight > 0
                release.set()
                assert all(answer.complete for answer in await asyncio.gather(*streaming))
                await until(lambda: not router.proxy.running)
                for engine in router.selector.view.engines.values():
                    assert [engine.state.in_flight, *(e.in_flight for e in engine.endpoints)] == [0] * (
                        1 + len(engine.endpoints)
                    )
                assert state_of_b.in_flight == 0
                await reads(len(WAYS) * EACH + 50, router.admin_address, "headrace_offered_requests_total")
                await reads(EACH, router.admin_address, "headrace_shed_total", priority="batch")
                assert await metric(router.admin_address, "headrace_requests_total", outcome="client_gone") >= EACH
