"""One timer a request, told apart from a client that left."""

import asyncio

import pytest

from headrace_router.proxy.coroutine.watch import Expired, Watch


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def test_it_expires_as_what_was_armed_last() -> None:
    watch = Watch(asyncio.get_running_loop())
    with pytest.raises(Expired) as expired, watch:
        watch.arm("first_byte", 60)
        watch.arm("idle", 0.01)
        await never()
    assert expired.value.kind == "idle"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_arming_anew_moves_the_deadline_and_it_can_be_entered_again() -> None:
    watch = Watch(asyncio.get_running_loop())
    with watch:
        for _ in range(20):
            watch.arm("idle", 0.2)
            await asyncio.sleep(0.02)
        watch.arm("idle", 0)
        await asyncio.sleep(0.25)
    with pytest.raises(Expired), watch:
        watch.arm("send", 0.01)
        await never()


async def test_cancellation_from_outside_stays_cancellation() -> None:
    watch = Watch(asyncio.get_running_loop())

    async def work() -> None:
        with watch:
            watch.arm("idle", 60)
            await never()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_client_that_leaves_as_the_limit_is_reached_has_left() -> None:
    watch = Watch(asyncio.get_running_loop())

    async def work() -> None:
        with watch:
            await never()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    watch.expire("shutdown")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_expire_ends_what_is_watched_and_nothing_else() -> None:
    watch = Watch(asyncio.get_running_loop())
    watch.expire("shutdown")
    with watch:
        await asyncio.sleep(0)

    async def work() -> str:
        try:
            with watch:
                await never()
        except Expired as expired:
            return expired.kind
        return "went on"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    watch.expire("shutdown")
    assert await task == "shutdown"


async def test_a_failure_of_the_work_itself_comes_out_as_it_is() -> None:
    watch = Watch(asyncio.get_running_loop())
    with pytest.raises(KeyError), watch:
        watch.arm("idle", 60)
        raise KeyError("x")
