"""Whether the operator lives, judged by its heartbeat alone: a file beside the tables, or Leases beside them.

Beside the request path. A table never expires by its age: a stale heartbeat is said (readiness detail, metrics) and
changes nothing else. What can't be read is unknown, never stale. Must not follow links out of the folders it was given.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from headrace_api.names import HEARTBEAT_FILE

# The operator writes tables to STATE/<namespace>/<name>.yaml and the heartbeat to STATE.
_FOLDERS_UP: Final = 2


class Beat(Protocol):
    """One more place where the operator shows that it lives."""

    @property
    def why(self) -> str | None:
        """Why nothing is known of it; None when it is known."""

    def age(self) -> float | None:
        """Seconds since the last renewal; None: unknown."""


class Heartbeat:
    """The youngest heartbeat file near the tables, and the oldest of the Leases: each may be another operator's."""

    def __init__(self, tables: Iterable[Path], leases: Sequence[Beat] = (), no_leases: str | None = None) -> None:
        folders = {folder for table in tables for folder in list(table.absolute().parents)[: _FOLDERS_UP + 1]}
        self._files = sorted(folder / HEARTBEAT_FILE for folder in folders)
        self._leases = leases
        self._no_leases = no_leases
        self._seen: tuple[float, float] = (-1.0, 0.0)

    def age(self) -> float | None:
        """Seconds since the last renewal; None: there is none, the operator's life is unknown."""
        ages = [lease.age() for lease in self._leases]
        if self._files:
            ages.append(self._of_files())
        return max((age for age in ages if age is not None), default=None)

    @property
    def why(self) -> str | None:
        """Why no Lease is known, where there should be one."""
        return next((lease.why for lease in self._leases if lease.why is not None), self._no_leases)

    def _of_files(self) -> float | None:
        """Of a file from the future (a clock was set back) the time since it was first seen: else a dead operator would
        look alive until that future has come."""
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
