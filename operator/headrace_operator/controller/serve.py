"""The operator's own listener: ``/metrics`` and ``/healthz``. Read-only, bounded, no part of the loop."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from headrace_api.commands import EnvironmentFailed
from headrace_operator.controller.metrics import CONTENT_TYPE, OperatorMetrics


@asynccontextmanager
async def served(
    address: tuple[str, int], metrics: OperatorMetrics, age: Callable[[], float], limit: Callable[[], float]
) -> AsyncIterator[str]:
    """Serve while the context is open; gives the address that was bound. age, limit: of the loop, seconds.

    Raises:
        EnvironmentFailed: the address can't be bound.
    """

    async def page(_: web.Request) -> web.Response:
        metrics.loop_age.set(age())
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def health(_: web.Request) -> web.Response:
        seconds = age()
        well = seconds <= limit()
        text = f"{'ok' if well else 'stuck'}: the loop went round {seconds:.1f} s ago\n"
        return web.Response(text=text, status=200 if well else 503)

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", page)
    app.router.add_get("/healthz", health)
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
