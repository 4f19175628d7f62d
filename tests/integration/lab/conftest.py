"""Fleets of simulated engines that end with the test, and a client that asks them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from headrace_lab.engine.fleet import Fleet
from support.lab_engines import spec


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[Fleet]]]:
    """Starts fleets; stops them at the end."""
    fleets = []

    async def begin(**fields: Any) -> Fleet:
        fleet = Fleet(spec(**fields))
        await fleet.start()
        fleets.append(fleet)
        return fleet

    yield begin
    for fleet in fleets:
        await fleet.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without limits."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session
