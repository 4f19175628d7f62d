"""The shell around the core: what happens between a step's end and the timer that tells of it."""

from __future__ import annotations

import asyncio

import pytest

from headrace_lab.engine import driver as module
from headrace_lab.engine.contract import Admission, EngineConfig, StepCost
from headrace_lab.engine.driver import Driver, Mailbox

CONFIG = EngineConfig(StepCost(1.0, 0.0, 0.0), 16_000)


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The driver's clock."""
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


def submit(driver: Driver, mailbox: Mailbox, output: int, every: int = 1) -> int:
    """A request that is queued."""
    number = driver.submit((4, output), (), "length", mailbox, every)
    assert not isinstance(number, Admission)
    return number


async def test_an_abort_that_comes_after_the_last_step_finds_a_finished_request(clock: Clock) -> None:
    driver = Driver(CONFIG, "m", 0)
    leaving, staying = Mailbox(0.0), Mailbox(0.0)
    first = submit(driver, leaving, 1)
    submit(driver, staying, 2)
    clock.now += 5.0
    driver.abort(first)
    driver.abort(first)
    assert [progress.finished for progress in await staying.take()] == [False, True]
    assert driver.metrics.ended["length"] == 2
    assert driver.metrics.ended["abort"] == 0
    driver.close()


async def test_an_aborted_request_gets_no_token_and_others_lose_none(clock: Clock) -> None:
    driver = Driver(CONFIG, "m", 0)
    leaving, staying = Mailbox(0.0), Mailbox(0.0)
    first = submit(driver, leaving, 10)
    submit(driver, staying, 3)
    clock.now += 1.5
    driver.abort(first)
    clock.now += 10.0
    assert [progress.generated for progress in await staying.take()] == [1, 2, 3]
    assert driver.metrics.ended["abort"] == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(leaving.take(), 0.01)
    driver.close()


@pytest.mark.parametrize(("every", "told"), [(1, [1, 2, 3, 4, 5, 6]), (4, [1, 5, 6]), (0, [6])])
async def test_only_tokens_that_somebody_waits_for_are_told(clock: Clock, every: int, told: list[int]) -> None:
    driver = Driver(CONFIG, "m", 0)
    mailbox = Mailbox(0.0)
    submit(driver, mailbox, 6, every)
    clock.now += 100.0
    driver.change(lambda core, now: core.set_slow(1.0, now))
    assert [progress.generated for progress in await mailbox.take()] == told
    assert driver.core.stats.generated_tokens == 6
    driver.close()


async def test_a_far_client_hears_of_a_token_when_it_has_travelled(clock: Clock) -> None:
    driver = Driver(CONFIG, "m", 0)
    mailbox = Mailbox(1.25)
    submit(driver, mailbox, 3)
    # Tokens at 101, 102 and 103 arrive at 102.25, 103.25 and 104.25.
    clock.now = 103.5
    driver.change(lambda core, now: core.set_slow(1.0, now))
    assert [progress.generated for progress in await mailbox.take()] == [1, 2]
    clock.now = 104.25
    assert [progress.generated for progress in await mailbox.take()] == [3]
    driver.close()


async def test_the_dead_tell_nothing(clock: Clock) -> None:
    driver = Driver(CONFIG, "m", 0)
    mailbox = Mailbox(0.0)
    number = submit(driver, mailbox, 1)
    driver.close()
    driver.abort(number)
    clock.now += 10.0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(mailbox.take(), 0.01)
    assert driver.metrics.ended == dict.fromkeys(driver.metrics.ended, 0)
