"""How many retries a policy's requests may cause here, so that retries never turn a fault into an overload.

On the request path. Deposits are made when a request is accepted, withdrawals when a retry is decided, before its
backoff: nothing is given back when either ends, so the answer depends neither on the order in which failures are
handled nor on retries that are still asleep. Re-picks (no engine can have accepted the attempt) draw on nothing.
"""

from __future__ import annotations

from typing import Final

# Long against a backoff (which must still be inside), short against a fault; Finagle and Linkerd use 10 s as well.
WINDOW_S: Final = 10.0
_BUCKETS: Final = 10
_WIDTH: Final = WINDOW_S / _BUCKETS
_ROUNDING: Final = 1e-9


class RetryBudget:
    """A share of the requests of the last WINDOW_S, plus a floor per second for this process.

    The share is the table's as long as this process sees room on its engines, down to the saturated one without. The
    floor is a bucket of tokens holding one second's worth, at least one; while anything is shed it gives nothing.
    """

    __slots__ = ("_deposits", "_floor", "_head", "_saturated", "_share", "_tokens", "_touched", "_withdrawals")

    def __init__(self, percent: float = 20.0, floor_per_second: float = 3.0) -> None:
        self._deposits = [0] * _BUCKETS
        self._withdrawals = [0] * _BUCKETS
        self._head = 0
        self._touched: float | None = None
        self._share = percent / 100.0
        self._saturated = self._share
        self._floor = floor_per_second
        self._tokens = self._capacity()

    def configure(self, percent: float, floor_per_second: float, saturated_percent: float | None = None) -> None:
        """Take on a table's figures; what happened in the window stays counted."""
        self._share = percent / 100.0
        self._saturated = self._share if saturated_percent is None else min(saturated_percent, percent) / 100.0
        self._floor = floor_per_second
        self._tokens = min(self._tokens, self._capacity())

    def deposit(self, now: float) -> None:
        """One request was accepted (its first attempt, not its retries)."""
        self._advance(now)
        self._deposits[self._head % _BUCKETS] += 1

    def withdraw(self, now: float, shedding: bool = False, slack: float = 1.0) -> bool:
        """Whether one retry may be made; if so its place is taken, from now, backoff included.

        slack: the room that this process sees on its engines, 1 to 0; the share tightens by it.
        """
        self._advance(now)
        if sum(self._withdrawals) + 1 <= self._share_at(slack) * sum(self._deposits) + _ROUNDING:
            self._withdrawals[self._head % _BUCKETS] += 1
            return True
        if shedding or self._tokens < 1.0 or self._floor <= 0.0:
            return False
        self._tokens -= 1.0
        return True

    def left(self, now: float, shedding: bool = False, slack: float = 1.0) -> float:
        """Retries that could be made at this instant, for metrics."""
        self._advance(now)
        share = max(0.0, self._share_at(slack) * sum(self._deposits) - sum(self._withdrawals))
        return share if shedding or self._floor <= 0.0 else share + self._tokens

    def _share_at(self, slack: float) -> float:
        return self._saturated + (self._share - self._saturated) * slack

    def _capacity(self) -> float:
        return max(1.0, self._floor)

    def _advance(self, now: float) -> None:
        if self._touched is None:
            self._touched = now
            self._head = int(now // _WIDTH)
            return
        if now <= self._touched:
            return
        self._tokens = min(self._capacity(), self._tokens + self._floor * (now - self._touched))
        self._touched = now
        head = int(now // _WIDTH)
        for bucket in range(max(self._head + 1, head - _BUCKETS + 1), head + 1):
            self._deposits[bucket % _BUCKETS] = 0
            self._withdrawals[bucket % _BUCKETS] = 0
        self._head = head
