"""How much memory all request bodies that a process holds may take together.

On the request path. Policies bound one body; without this bound many uploads at once would take whatever there is, and
the kernel would end every stream at once. Counted is what has come, not what a head promises, so that promises alone
can't keep others out. Must not know requests.
"""

from __future__ import annotations

from typing import Final

DEFAULT_LIMIT: Final = 2**30


class BodyMemory:
    """Bytes held and their bound. Whoever takes gives back the same, once."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Whether ``size`` more bytes may be held; if not, none is taken."""
        if self.held + size > self.limit:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        """They are no longer held."""
        self.held -= size
