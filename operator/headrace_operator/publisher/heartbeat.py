"""The heartbeat: the file by which routers judge whether the operator lives; the table's own age says nothing.

On the routing-weight path. Renewed at most every ten seconds; stale for routers after sixty.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from headrace_operator.publisher.files import write_atomically
from headrace_operator.publisher.state import heartbeat_path

RENEW_SECONDS: Final = 10.0


class Heartbeat:
    """Renews the file of one state directory."""

    def __init__(self, state: Path) -> None:
        self._path = heartbeat_path(state)
        self._renewed: float | None = None

    def renew(self, steady: float, at: str) -> bool:
        """Write ``at`` (RFC 3339) unless it was renewed less than ten seconds ago; steady: seconds.

        Raises:
            OSError: it can't be written.
        """
        if self._renewed is not None and steady - self._renewed < RENEW_SECONDS:
            return False
        write_atomically(self._path, f"{at}\n".encode(), sync=False)
        self._renewed = steady
        return True
