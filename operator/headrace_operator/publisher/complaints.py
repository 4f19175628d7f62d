"""What can't be done, told once: a full disk must not fill the log too.

On the routing-weight path, beside it. Keyed by what is attempted; told again only after it went well in between.
Thread-safe: tables, Events, heartbeats and other clusters complain from threads of their own.
"""

from __future__ import annotations

import logging
from threading import Lock

log = logging.getLogger(__name__)


class Complaints:
    """What was told and has not gone well since."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._lock = Lock()

    def about(self, what: str, why: object) -> None:
        """Warn that ``what`` can't be done, unless that was the last word on it."""
        with self._lock:
            news = self._told.get(what) != str(why)
            self._told[what] = str(why)
        if news:
            log.warning("%s: %s (told once)", what, why)

    def settled(self, what: str) -> None:
        """It went well."""
        with self._lock:
            told = self._told.pop(what, None)
        if told is not None:
            log.info("%s: done again", what)

    def only(self, prefix: str, known: dict[str, str]) -> None:
        """The state of everything that starts with ``prefix``: what is wrong now, by what is attempted."""
        for what, why in known.items():
            self.about(prefix + what, why)
        with self._lock:
            told = list(self._told)
        for what in [what for what in told if what.startswith(prefix) and what.removeprefix(prefix) not in known]:
            self.settled(what)
