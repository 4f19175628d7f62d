"""Asks endpoints for their health when selection wants to know: ejected ones, and those that get no traffic.

Beside the request path. Which endpoints are due is the core's decision; only endpoints of the table in use are ever
asked (REL-04). An answer below 500 is a sign of life, whatever the path means to that engine. Must not hold a place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace_api.table import TableEngine
from headrace_router.core.selection import Selector
from headrace_router.upstream.credentials import ca_of
from headrace_router.upstream.port import Address, Cut, Lost, NotSent, UpstreamPool

EVERY: Final = 0.25
LIMIT: Final = 2.0
# A single silence may be our own: a busy loop would else find a whole fleet not ready at once.
_TRIES: Final = 2
HEALTH: Final = "/health"
_MANY: Final = 64

Lacking = Callable[[TableEngine], str | None]


def _nothing(_engine: TableEngine) -> None:
    return None


async def probe_for_ever(
    selector: Selector, upstream: UpstreamPool, told: Callable[[], None], lacking: Lacking = _nothing
) -> None:
    """Probe until cancelled; ``told`` is called after each change that may free an engine.

    lacking: why an engine can't be used whatever it answers; None: nothing of ours is missing.
    """
    loop = asyncio.get_running_loop()
    asking: set[asyncio.Task[None]] = set()
    try:
        while True:
            for probe in selector.due_probes(loop.time(), _MANY - len(asking)) if len(asking) < _MANY else ():
                asked = _ask(selector, upstream, probe.engine, probe.url, told, lacking)
                task = asyncio.create_task(asked, name="probe")
                asking.add(task)
                task.add_done_callback(asking.discard)
            await asyncio.sleep(EVERY)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _ask(
    selector: Selector,
    upstream: UpstreamPool,
    engine: str,
    url: str,
    told: Callable[[], None],
    lacking: Lacking = _nothing,
) -> None:
    known = selector.view.engines.get(engine)
    if known is None:
        return
    tls = known.config.tls
    address = Address(engine, url, tls.server_name if tls is not None else None, ca_of(known.config))
    ready = False
    for _ in range(_TRIES if lacking(known.config) is None else 0):
        try:
            ready = await upstream.fetch(address, HEALTH, LIMIT) < 500
            break
        except TimeoutError:
            continue
        except NotSent as error:
            if error.own:
                return  # without sockets of our own we know nothing of any engine
            break
        except (Lost, Cut):
            break
    selector.set_ready(engine, url, ready)
    told()
