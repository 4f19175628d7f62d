"""Keeps the log readable, and the loop free of it, when one thing goes wrong a thousand times a second.

Beside the request path. Of lines that say the same kind of thing a few a second pass; the next one that passes says
how many did not. Must not drop the first of anything.
"""

from __future__ import annotations

import logging
from typing import Final

# Lines of one kind in a window, and its length in seconds.
LINES: Final = 5
WINDOW_S: Final = 1.0
# Kinds remembered; they come from our own and aiohttp's source, not from clients.
_KINDS: Final = 1_000


class Calm(logging.Filter):
    """A kind is a logger, a level and a message before its arguments are put in."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line passes; of lines left out the next that passes tells the number."""
        if len(self._kinds) > _KINDS:
            self._kinds.clear()
        kind = self._kinds.setdefault((record.name, record.levelno, str(record.msg)), [record.created, 0.0, 0.0])
        if not 0.0 <= record.created - kind[0] < WINDOW_S:
            kind[0], kind[1] = record.created, 0.0
        kind[1] += 1
        if kind[1] > LINES:
            kind[2] += 1
            return False
        if kind[2]:
            record.msg = f"{record.getMessage()} (and {kind[2]:.0f} more like it before)"
            record.args = ()
            kind[2] = 0.0
        return True
