"""What became of one request, and whether it was lost needlessly. Pure.

"Lost needlessly" means: it failed before its first body byte although a re-pick or budget was left. The rule is read
from the router's answer, and in doubt against the router: a failure before the first body byte counts as needless
unless the answer is a refusal that is meant (shedding, a client's own error) or shows that nothing was left: all
attempts made, no engine at all, or an attempt that an engine may have worked on and for which the router says that the
retry budget is spent (its own count of refused retries must bear that out: ``unborne``). A stream that breaks off
after its first byte is a failure, but nothing could have saved it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

# Error codes of the router (headrace_router). Refusals that are meant: the load is above what may be served.
SHED_CODES: Final = frozenset({"shed", "saturated"})
NO_ENGINE: Final = "no_engine"  # none is eligible, reachable and healthy: nothing left to pick
BUDGET_SPENT: Final = (
    "engine_failed"  # an engine may have worked on it, and the retry budget or the engines are used up
)
REFUSED_ATTEMPT: Final = "engine_unreachable"  # no engine took it: re-picks are free, so only their number ends them


class Result(StrEnum):
    """How a request ended, as a client sees it."""

    DONE = "done"
    SHED = "shed"  # refused by the router because demand exceeds capacity
    CUT = "cut"  # broke off after its first body byte
    REJECTED = "rejected"  # a client's error: 4xx
    EXHAUSTED = "exhausted"  # failed, and neither re-pick nor budget was left
    FAILED = "failed"  # failed before its first body byte, for any other reason
    UNREACHABLE = "unreachable"  # no connection to the router
    TIMED_OUT = "timed out"  # no first byte within the client's limit
    NOT_SENT = "not sent"  # the replay itself could not send it


NEEDLESS: Final = frozenset({Result.FAILED, Result.UNREACHABLE, Result.TIMED_OUT})
FAILURES: Final = frozenset({Result.CUT, Result.REJECTED, Result.EXHAUSTED, *NEEDLESS})


class Answer(NamedTuple):
    """What was seen of an answer. ``status`` 0: none came. ``code``: the error body's code, "" without one.

    attempts: made by the router (its header), 0 where it does not say; max_attempts: what the policy allows.
    """

    status: int
    body_begun: bool
    complete: bool
    code: str = ""
    timed_out: bool = False
    attempts: int = 0
    max_attempts: int = 3


class Outcome(NamedTuple):
    """One request's end. Times in seconds: ``at`` of the run (as planned), ``late`` behind the plan, ``ttft`` and
    ``duration`` from sending; ``ttft`` None without an event with content. ``revision`` -1 where no header said it."""

    at: float
    frontend: str
    priority: str
    session: str
    late: float
    result: Result
    status: int = 0
    ttft: float | None = None
    duration: float = 0.0
    engine: str = ""
    reason: str = ""
    revision: int = -1
    attempts: int = 0
    code: str = ""
    detail: str = ""

    @property
    def lost_needlessly(self) -> bool:
        """Failed before its first body byte although something was left to try."""
        return self.result in NEEDLESS


def classify(answer: Answer) -> Result:
    """How a request with this answer ended."""
    if answer.status == 200 and answer.complete:
        return Result.DONE
    if answer.body_begun and answer.status == 200:
        return Result.CUT
    if answer.timed_out:
        return Result.TIMED_OUT
    if answer.status == 0:
        return Result.UNREACHABLE
    if answer.code in SHED_CODES:
        return Result.SHED
    if _nothing_left(answer):
        return Result.EXHAUSTED
    if 400 <= answer.status < 500 and answer.status != 429:
        return Result.REJECTED
    return Result.FAILED


def _nothing_left(answer: Answer) -> bool:
    if answer.code in (NO_ENGINE, BUDGET_SPENT):
        return True
    return answer.code == REFUSED_ATTEMPT and answer.attempts >= answer.max_attempts


def unborne(outcomes: Iterable[Outcome], max_attempts: int, refused_retries: float) -> int:
    """How many answers claim a spent budget beyond the retries that the routers counted as refused.

    They are lost needlessly too: the router gave up with budget in hand.
    """
    claims = sum(
        outcome.result is Result.EXHAUSTED and outcome.code == BUDGET_SPENT and outcome.attempts < max_attempts
        for outcome in outcomes
    )
    return max(0, claims - int(refused_retries))
