"""Whether one endpoint lives, from what came of each attempt to read it.

On the engine-signal path. The rule: an answered read is life; ``refused`` connects in a row with nothing read between
are death (nothing listens there); everything else (a time-out, a broken page, an error status) is unknown, because a
busy or half-deaf engine may well serve. The dead stay dead until something answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["Read", "Answered", "Refused", "Failed", "Down", "Gone"]
"""Read: a page with known figures. Answered: HTTP, but no such page. Refused: nothing listens. Failed: no answer.

Of a metric source that scrapes for us: Down, it can't read the target (``up == 0``); Gone, it no longer knows it.
"""


@dataclass(frozen=True, slots=True)
class Liveness:
    """up: True, False, or None for unknown. refused: refused connects in a row. at: time of the last attempt."""

    up: bool | None = None
    refused: int = 0
    at: float = float("-inf")

    def observe(self, at: float, outcome: Outcome, limit: int) -> Liveness:
        """The state after one more attempt; attempts that are not newer change nothing."""
        if not at > self.at:
            return self
        if outcome == "Read":
            return Liveness(True, 0, at)
        if outcome == "Answered":
            return Liveness(None, 0, at)
        if outcome == "Refused":
            refused = self.refused + 1
            up = False if refused >= limit else (False if self.up is False else None)
            return Liveness(up, refused, at)
        return Liveness(False if self.up is False else None, self.refused, at)


def engine_alive(replicas: list[Liveness]) -> bool | None:
    """An engine lives while one replica does, and is dead when all are; otherwise unknown."""
    if any(replica.up for replica in replicas):
        return True
    if replicas and all(replica.up is False for replica in replicas):
        return False
    return None
