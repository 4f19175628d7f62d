"""Carries out the script: hands faults to the engines at their instants, and kills the operator when asked to.

What was done is pinned to the board for the view, at the instant at which it was really done.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import NamedTuple

from headrace_api.status import MAX_HISTORY
from headrace_lab.demo.frame import DEAD
from headrace_lab.demo.observe import Observer, term_of, untimed
from headrace_lab.demo.plant import Plant
from headrace_lab.demo.report import ChaosReport
from headrace_lab.demo.script import SLOW_FACTOR, Fault
from headrace_lab.replay.outcome import FAILURES, Outcome

CHAOS_AT, CHAOS_BACK = 0.23, 0.28  # shares of the run: in the middle of the surge, when weights should move


class Board:
    """Notes (instant, text) in order, and what each engine is at now."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, str]] = []
        self.states: dict[str, str] = {}


class Interruption(NamedTuple):
    """The operator's absence: instants, and what stood before and after."""

    killed_at: float
    restarted_at: float
    term_before: int
    revision_before: int
    history_before: tuple[str, ...]


class Stage:
    """Faults in order of time."""

    def __init__(self, plant: Plant, observer: Observer, board: Board, began: float) -> None:
        self._plant = plant
        self._observer = observer
        self._board = board
        self._began = began

    async def faults(self, faults: Sequence[Fault]) -> None:
        """Begin and end every fault at its instant."""
        moments = [(fault.at, fault, True) for fault in faults]
        moments += [(fault.until, fault, False) for fault in faults if fault.kind in ("surge", "slow")]
        for at, fault, begins in sorted(moments, key=lambda moment: moment[0]):
            await self._until(at)
            await (self._begin(fault) if begins else self._end(fault))

    async def kill_operator(self, duration: float) -> Interruption:
        """Kill it as the kernel would when memory is short, and start it again a while later."""
        await self._until(CHAOS_AT * duration)
        observer = self._observer
        observer.poll()
        before = (term_of(self._plant.state), _revision(observer), newest_first(observer))
        self._plant.operator.send(signal.SIGKILL)
        await self._plant.operator.wait()
        killed = self._note("the operator is killed (-9); routers go on with the last tables")
        await self._until(CHAOS_BACK * duration)
        await self._plant.operator.start()
        return Interruption(killed, self._note("the operator is started again"), *before)

    async def _begin(self, fault: Fault) -> None:
        if fault.kind == "slow":
            await self._plant.switch(fault.target, slow=SLOW_FACTOR)
            self._board.states[fault.target] = f"{SLOW_FACTOR:g} x slow"
        elif fault.kind == "killed":
            await self._plant.switch(fault.target, dead=True)
            self._board.states[fault.target] = DEAD
        elif fault.kind == "restored":
            await self._plant.switch(fault.target, restore=True)
            self._board.states[fault.target] = "back"
        self._note(fault.text)

    async def _end(self, fault: Fault) -> None:
        if fault.kind == "slow":
            await self._plant.switch(fault.target, restore=True)
            self._board.states.pop(fault.target, None)
        self._note(f"{fault.target}: {fault.kind} is over")

    def _note(self, text: str) -> float:
        now = asyncio.get_running_loop().time() - self._began
        self._board.notes.append((now, text))
        return now

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self._began + at - asyncio.get_running_loop().time()))


def chaos_report(interruption: Interruption, outcomes: Sequence[Outcome], observer: Observer) -> ChaosReport:
    """What happened while the operator was away, and where it went on."""
    killed, back = interruption.killed_at, interruption.restarted_at
    meanwhile = [outcome for outcome in outcomes if killed <= outcome.at + outcome.late < back]
    after = [p for p in observer.publications if p.at >= back and p.term > interruption.term_before]
    new = [p.revision for p in after if p.revision > interruption.revision_before]
    return ChaosReport(
        killed_at=round(killed, 2),
        restarted_at=round(back, 2),
        requests_meanwhile=len(meanwhile),
        failed_meanwhile=sum(outcome.result in FAILURES for outcome in meanwhile),
        term_before=interruption.term_before,
        term_after=max((p.term for p in after), default=interruption.term_before),
        revision_before=interruption.revision_before,
        first_revision_after=min(new, default=None),
        history_kept=_kept(interruption.history_before, tuple(map(untimed, observer.status.get("history", ())))),
    )


def newest_first(observer: Observer) -> tuple[str, ...]:
    """Every line of history that the operator has told, in Events or status."""
    return tuple(reversed(observer.history))


def _kept(before: tuple[str, ...], after: tuple[str, ...]) -> bool:
    """The old lines still stand below the new ones, as far as the bound of the history lets them."""
    fresh = [line for line in after if line not in before]
    return (*fresh, *before)[:MAX_HISTORY] == after


def _revision(observer: Observer) -> int:
    return max((publication.revision for publication in observer.latest.values()), default=0)
