"""Where counts stand: in the plain objects of one process, or in memory that several share.

On the routing-weight path: asked when a view is built, never by a request. Must stay trivial for one process, whose
picks pay for nothing here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from headrace_router.core.admission import WaitQueue
from headrace_router.core.state import EngineState, Pool


class States:
    """Makes the mutable state of one process that shares none. processes: how many are one router."""

    processes: int = 1

    def engine(self, engine: str) -> EngineState:
        """A new engine's state."""
        return EngineState(engine)

    def pool(self, engines: Collection[str]) -> Pool:  # noqa: ARG002
        """A new pool's; engines: the ids of its members."""
        return Pool()

    def queue(self, policy: str) -> WaitQueue:  # noqa: ARG002
        """A new policy's queue."""
        return WaitQueue()


ALONE: Final = States()
