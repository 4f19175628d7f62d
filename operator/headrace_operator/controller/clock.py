"""The two clocks of the shell: steady seconds for ages and waits, the wall's for what people read."""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace_operator.snapshot.clock import rfc3339


@dataclass(frozen=True, slots=True)
class Clock:
    """Reads the system's clocks; tests give another one."""

    def steady(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def now(self) -> str:
        """The wall's time in RFC 3339."""
        return rfc3339(self.wall())
