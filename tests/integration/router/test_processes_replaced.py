"""A worker that is told to end, by whoever has its pid: it ends well, and another takes its place."""

import os
import signal
from pathlib import Path

from headrace_router.processes.supervisor import MOST_AT_ONCE
from support.fake_engine import EVENT, Exchange, FakeEngine, answers
from support.raw_client import ask, post
from support.router_process import Process, reads, until_async
from support.router_processes import Streaming, connected, details, gone, pids, started, until_ready

ASK = {"model": "m"}
STREAM = {"model": "m", "stream": True}


async def replaced(router: Process, old: int) -> int:
    """The pid of the first worker once it isn't ``old`` any more and the router is ready."""

    async def anew() -> bool:
        return (await details(router))[0].get("pid", old) != old

    await until_async(anew)
    await until_ready(router)
    assert gone(old)
    return (await pids(router))[0]


async def test_a_worker_sent_sigterm_ends_its_streams_and_is_replaced(tmp_path: Path) -> None:
    """As often as somebody does so: a clean end within seconds of the start is no death at once, which ends the
    router."""
    script = Streaming()

    async def both(exchange: Exchange) -> None:
        await (script(exchange) if b"stream" in exchange.request.body else answers(exchange))

    async with FakeEngine(both) as engine, started(tmp_path, engine, "--grace", "60") as router:
        workers = await pids(router)
        async with connected(router, workers, 0, 1) as ending, connected(router, workers, 1, 1) as staying:
            for client in (*ending, *staying):
                await client.send(post(STREAM))
                await client.until(EVENT)
            os.kill(workers[0], signal.SIGTERM)

            async def drains() -> bool:
                return not (await details(router))[0]["ready"]

            await until_async(drains)
            # The other one alone takes connections now.
            assert (await ask(router.url, post(ASK))).status == 200
            assert not gone(workers[0])
            script.end.set()
            for client in (*ending, *staying):
                assert (await client.answer()).complete
            assert await ending[0].to_end() == b""
            again = [await replaced(router, workers[0]), workers[1]]
            async with connected(router, again, 0, 1) as new:
                for client in (*new, *staying):
                    await client.send(post(ASK))
                    assert (await client.answer()).status == 200
            for _ in range(MOST_AT_ONCE):
                os.kill(again[0], signal.SIGTERM)
                again[0] = await replaced(router, again[0])
            assert await pids(router) == again
            await reads(1 + MOST_AT_ONCE, router.admin, "headrace_process_restarts_total", process="0")
        router.terminate()
        assert await router.exit_code() == 0
        told = f"process 0 (pid {workers[0]}) drained and ended; it is replaced"
        assert any(told in line for line in router.said)
        assert not any("started again" in line for line in router.said)
