"""What a router process is told that is one of several: its number, what it inherits, what it shares.

Beside every path. Must not know who started it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from headrace_router.core.build_view import build_view
from headrace_router.core.selection import Selector
from headrace_router.core.shared_selection import SharedSelector
from headrace_router.core.states import ALONE, States
from headrace_router.listener.inherited import Leaves
from headrace_router.proxy.waiting import LOOK_EVERY

# Seconds between two looks for room while somebody waits: no other process tells of what it gives back.
LOOK_OFTEN: Final = 0.01


@dataclass(frozen=True, slots=True)
class OneOf:
    """process: its number, from 0. sockets: clients' listeners that all have; none: it makes its own, and own pages.

    turn: of who writes the access log. leaves: whether a new connection is left to another process.
    """

    process: int = 0
    processes: int = 1
    sockets: Sequence[socket.socket] = ()
    states: States = ALONE
    turn: AbstractContextManager[None] | None = None
    leaves: Leaves = lambda *_: False

    def selector(self, chance: Callable[[], float], wall_offset: float) -> Selector:
        """Its selection, at a part of a turn far from the others'; ``chance`` gives numbers from 0 to 1."""
        phase = (self.process + chance()) / self.processes
        made = SharedSelector if self.processes > 1 else Selector
        return made(build_view((), phase=phase, states=self.states), rng=chance, wall_offset=wall_offset)

    @property
    def look_every(self) -> float:
        """Seconds between two looks for room."""
        return LOOK_OFTEN if self.processes > 1 else LOOK_EVERY


ALL: Final = OneOf()
