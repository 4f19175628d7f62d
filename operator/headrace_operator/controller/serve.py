"""The operator's own listener: ``/metrics``, ``/healthz`` and ``/readyz``. Read-only, bounded, no part of the loop."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from headrace_api.commands import EnvironmentFailed
from headrace_operator.controller.metrics import CONTENT_TYPE, OperatorMetrics

Health = Callable[[], tuple[bool, str]]
"""Whether something is well, and one line for people."""


def loop_health(age: Callable[[], float], limit: Callable[[], float]) -> Health:
    """The health of a loop that goes round by itself. age, limit: seconds."""

    def judge() -> tuple[bool, str]:
        seconds = age()
        well = seconds <= limit()
        return well, f"{'ok' if well else 'stuck'}: the loop went round {seconds:.1f} s ago"

    return judge


@asynccontextmanager
async def served(
    address: tuple[str, int],
    metrics: OperatorMetrics,
    alive: Health,
    ready: Health | None = None,
    before_page: Callable[[], None] = lambda: None,
) -> AsyncIterator[str]:
    """Serve while the context is open; gives the address that was bound.

    alive, ready: of ``/healthz`` and ``/readyz`` (none: as alive). before_page: brings the metrics up to date.

    Raises:
        EnvironmentFailed: the address can't be bound.
    """

    async def page(_: web.Request) -> web.Response:
        before_page()
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    def answer(judge: Health) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def health(_: web.Request) -> web.Response:
            well, text = judge()
            return web.Response(text=f"{text}\n", status=200 if well else 503)

        return health

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", page)
    app.router.add_get("/healthz", answer(alive))
    app.router.add_get("/readyz", answer(ready or alive))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, *address)
        try:
            await site.start()
        except OSError as error:
            # asyncio's own text has the address once more; a failed look-up of a name has a negative number.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise EnvironmentFailed(
                f"--metrics {address[0]}:{address[1]}: {why}; right would be a free address"
            ) from error
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
