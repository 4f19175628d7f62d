"""Rounds that fail: logged once a kind; once they have failed for long, a sentence for the policies' statuses.

On the routing-weight path; the loop's bookkeeping. The tables that stand are good tables, so nothing else is done.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class Failing:
    """What was logged of the failures since rounds last succeeded, and since when they fail."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._held = False
        self._since: float | None = None
        self._first = ""

    def tell_once(self, what: str) -> None:
        """Log something that is tried again."""
        if what not in self._told:
            self._told.add(what)
            log.info("%s", what)

    def held(self, error: Exception) -> None:
        """A round ended because nothing may be written any more."""
        if not self._held:
            self._held = True
            log.info("nothing is written: %s", error)

    def failed(self, error: Exception, at: float, patience: float) -> str:
        """A round raised ``error``, which is being handled. at: steady seconds.

        Gives what people are to be told, the same until rounds succeed; empty before they failed for ``patience`` s.
        """
        kind = f"{type(error).__name__}: {str(error)[:200]}"
        if kind not in self._told:
            self._told.add(kind)
            log.exception("this round failed, the last tables stay (told once): %s", kind)
        if self._since is None:
            self._since, self._first = at, kind
        if at - self._since < patience:
            return ""
        return f"decisions fail, the last tables stay; more in the operator's log: {self._first}"

    def succeeded(self) -> None:
        """A round came off."""
        if self._told or self._held:
            log.info("rounds succeed again")
        self._told.clear()
        self._held, self._since, self._first = False, None, ""
