"""Collections that would hold up streams wait."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from headrace_router import pauses
from support.thawed import thawed as thawed


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    made: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: made.append(1))
    monkeypatch.setattr(pauses, "LOOK_EVERY", 0.0)
    return iter([made])


@pytest.mark.parametrize(
    ("after", "idle", "collects"),
    [
        pytest.param(pauses.LEAST_S - 1, True, False, id="one was made lately"),
        pytest.param(pauses.LEAST_S, True, True, id="nothing runs"),
        pytest.param(pauses.LEAST_S, False, False, id="something runs"),
        pytest.param(pauses.MOST_S, False, True, id="something runs for ever"),
    ],
)
async def test_full_collections_wait_for_idleness(
    after: float, idle: bool, collects: bool, collections: Iterator[list[int]]
) -> None:
    made, looks, looked = next(collections), 0, asyncio.Event()

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks == 4:
            looked.set()
        return 0.0 if looks == 1 else after

    task = asyncio.create_task(pauses.collect_when_idle(lambda: idle, clock))
    await looked.wait()
    task.cancel()
    assert bool(made) is collects


async def test_work_aside_is_not_collected_and_collections_go_on_after_it() -> None:
    assert await pauses.aside(gc.isenabled) is False
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        await pauses.aside(divmod, 1, 0)
    assert gc.isenabled()


class Knot:
    """Refers to itself: only a collection ends it."""

    def __init__(self) -> None:
        self.itself = self


async def test_what_is_made_aside_is_looked_at_by_full_collections_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    ended = asyncio.Event()
    knot = weakref.ref(await pauses.aside(Knot), lambda _: ended.set())
    gc.collect()
    assert knot() is not None
    monkeypatch.setattr(pauses, "LOOK_EVERY", 0.0)
    times = iter([0.0, pauses.LEAST_S])
    task = asyncio.create_task(pauses.collect_when_idle(lambda: True, lambda: next(times, pauses.LEAST_S)))
    async with asyncio.timeout(20):
        await ended.wait()
    task.cancel()
