"""Whether the operator lives, judged by its heartbeat file alone.

Beside the request path. A table never expires by its age: a stale heartbeat is said (readiness detail, metrics) and
changes nothing else. Must not follow links out of the folders it was given.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headrace_api.names import HEARTBEAT_FILE

# The operator writes tables to STATE/<namespace>/<name>.yaml and the heartbeat to STATE.
_FOLDERS_UP: Final = 2


class Heartbeat:
    """The youngest heartbeat near the tables; ``age`` None: there is none, the operator's life is unknown."""

    def __init__(self, tables: Iterable[Path]) -> None:
        folders = {folder for table in tables for folder in list(table.absolute().parents)[: _FOLDERS_UP + 1]}
        self._files = sorted(folder / HEARTBEAT_FILE for folder in folders)
        self._seen: tuple[float, float] = (-1.0, 0.0)

    def age(self) -> float | None:
        """Seconds since the last renewal.

        Of one from the future (a clock was set back) the time since it was first seen: else a dead operator would
        look alive until that future has come.
        """
        renewed = [when for file in self._files if (when := _renewed(file)) is not None]
        if not renewed:
            return None
        latest, now = max(renewed), time.monotonic()
        if latest != self._seen[0]:
            self._seen = (latest, now)
        age = time.time() - latest
        return age if age >= 0.0 else now - self._seen[1]


def _renewed(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None
