"""The wait for a place, in the turns where places are given and taken."""

import asyncio
from collections.abc import Callable

import pytest

from headrace_api.table import TableQueue
from headrace_router.core.facts import Refusal, RequestFacts
from headrace_router.core.selection import Pick, Selector
from headrace_router.core.view import build_view
from headrace_router.proxy.coroutine.waiting import Waiting
from support.router_table import EngineAt, routing_table


@pytest.fixture
def parts() -> tuple[Selector, Callable[[], float]]:
    queue = TableQueue(max=2, deadline=30.0)
    table = routing_table({"a": EngineAt(("http://127.0.0.1:9",), limit=1)}, queue=queue)
    selector = Selector(rng=lambda: 0.5)
    selector.install(build_view([table], selector.view))
    return selector, lambda: asyncio.get_running_loop().time()


def take(selector: Selector, now: float) -> Pick:
    picked = selector.pick(RequestFacts("m"), now)
    assert isinstance(picked, Pick)
    return picked


async def waiter(selector: Selector, waiting: Waiting, priority: int = 0) -> Pick | Refusal:
    request = RequestFacts("m")
    refusal = selector.pick(request, asyncio.get_running_loop().time())
    assert isinstance(refusal, Refusal)
    assert refusal.queue
    return await waiting.wait(selector.view.policies[0], priority, request, refusal)


async def started(selector: Selector, waiting: Waiting, priority: int = 0) -> asyncio.Task[Pick | Refusal]:
    task = asyncio.create_task(waiter(selector, waiting, priority))
    await asyncio.sleep(0)
    return task


async def test_a_place_goes_to_the_highest_priority_first(parts: tuple[Selector, Callable[[], float]]) -> None:
    """protection.md, Load shedding: highest priority first; a full queue gives up its lowest for a higher one."""
    selector, now = parts
    counts: list[int] = []
    waiting = Waiting(selector, asyncio.get_running_loop(), counts.append)
    held = take(selector, now())
    low, lower = await started(selector, waiting, 1), await started(selector, waiting, 0)
    high = await started(selector, waiting, 5)
    assert isinstance(await lower, Refusal)
    held.release()
    waiting.wake()
    picked = await high
    assert isinstance(picked, Pick)
    assert not low.done()
    picked.release()
    waiting.wake()
    last = await low
    assert isinstance(last, Pick)
    last.release()
    assert counts[-1] == 0
    assert selector.view.engines["inference/a"].state.in_flight == 0


async def test_a_place_given_to_one_who_leaves_in_the_same_turn_goes_on(
    parts: tuple[Selector, Callable[[], float]],
) -> None:
    """HAS-04 (https://github.com/kubeai-project/kubeai/issues/447): never held by a dead request."""
    selector, now = parts
    waiting = Waiting(selector, asyncio.get_running_loop(), lambda _: None)
    held = take(selector, now())
    leaver, stayer = await started(selector, waiting), await started(selector, waiting)
    held.release()
    waiting.wake()
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver
    picked = await asyncio.wait_for(stayer, 10)
    assert isinstance(picked, Pick)
    picked.release()
    assert selector.view.engines["inference/a"].state.in_flight == 0


async def test_a_full_queue_refuses_at_once(parts: tuple[Selector, Callable[[], float]]) -> None:
    selector, now = parts
    waiting = Waiting(selector, asyncio.get_running_loop(), lambda _: None)
    held = take(selector, now())
    tasks = [await started(selector, waiting) for _ in range(2)]
    assert isinstance(await waiter(selector, waiting), Refusal)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    held.release()
    assert len(selector.view.policies[0].queue) == 0
