"""Whether an attempt that failed before the first body byte is made again, and what Retry-After means.

On the request path; decisions only, the shell makes the attempts. A re-pick (no engine can have accepted the last
attempt) is bounded by the policy's attempts alone; every other retry takes a place in the budget first. A body that
was not kept, or an answer of which a byte has reached the client, is never retried.
"""

from __future__ import annotations

from calendar import timegm
from email.utils import parsedate_tz
from enum import Enum
from typing import Final

from headrace_router.core.view import PolicyView


class Retry(Enum):
    """NO: give the client what the last engine answered. REPICK and RETRY: pick again, the latter paid for."""

    NO = "no"
    REPICK = "repick"
    RETRY = "retry"


def decide_retry(
    attempts: int, policy: PolicyView, *, repick: bool, replayable: bool, now: float, shedding: bool = False
) -> Retry:
    """Decide after ``attempts`` attempts, the last of which failed.

    Args:
        attempts: made so far, at least 1.
        policy: whose bound and budget apply.
        repick: the last attempt wrote nothing (connect refused or timed out).
        replayable: the body is still there whole and no byte of an answer has reached the client.
        now: monotonic seconds.
        shedding: anything of the policy is being shed; the budget's floor is 0 then.
    """
    if not replayable or attempts >= policy.table.retry.max_attempts:
        return Retry.NO
    if repick:
        return Retry.REPICK
    return Retry.RETRY if policy.budget.withdraw(now, shedding, policy.slack()) else Retry.NO


# A sane engine asks for no more; the policy's own cap (ejection.max) is applied on top where it is reported.
_MOST_DIGITS: Final = 12


def read_retry_after(text: str | None, wall_now: float) -> float | None:
    """Seconds that a Retry-After asks for (RFC 9110, 10.2.3: seconds or an HTTP date); 0.0 is an answer.

    None: no header, a negative number, or nothing that can be read.
    """
    value = (text or "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:_MOST_DIGITS]) if len(value) <= _MOST_DIGITS else 10.0**_MOST_DIGITS
    try:
        date = parsedate_tz(value)
        if date is None or date[9] is None:
            return None
        return max(0.0, timegm(date[:9]) - date[9] - wall_now)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
