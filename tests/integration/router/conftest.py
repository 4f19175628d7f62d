"""Routers under test run on the loop they run on in production; those in pods have an API server of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from support.fake_api import TOKEN, FakeApi
from support.thawed import thawed as thawed


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        yield made


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    return path
