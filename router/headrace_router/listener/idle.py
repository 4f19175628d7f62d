"""Which connection makes room for a new one: the one that has idled longest, or else one whose first head is late.

On the path of new connections, once there are as many as there may be; only then is the order kept, at one move for
each answer that ends. A request's begin doesn't leave the order, who looks passes it over. Reference for the rule:
nginx's reusable connections. Must not choose one whose request is whole, or that was served before and has begun one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace_router.listener.client_connection import ClientConnection

# Idle ones passed over for one new connection (bytes on their way, new); they come last the next time. Who is idle no
# more leaves the order for good, each once.
LOOKED_AT: Final = 16


class Idle:
    """The order, the longest idle first; with some that are idle no more. Those that have a part of their first head
    are in one of their own, found when they were passed over."""

    __slots__ = ("_begun", "_order")

    def __init__(self) -> None:
        self._order: OrderedDict[ClientConnection, None] = OrderedDict()
        self._begun: OrderedDict[ClientConnection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def fill(self, connections: Iterable[ClientConnection]) -> None:
        """Begin to keep it, with those that idle already."""
        waiting = [connection for connection in connections if connection.waits]
        waiting.sort(key=_since)
        self._order = OrderedDict.fromkeys(waiting)
        self._begun = OrderedDict.fromkeys([connection for connection in connections if connection.begins])

    def clear(self) -> None:
        """Keep it no more."""
        self._order = OrderedDict()
        self._begun = OrderedDict()

    def add(self, connection: ClientConnection) -> None:
        """It idles from now on."""
        self._order[connection] = None
        self._order.move_to_end(connection)

    def keep(self, connection: ClientConnection) -> None:
        """It has sent something, and idles as before: its place stays, if it has one."""
        self._order.setdefault(connection)

    def discard(self, connection: ClientConnection) -> None:
        """It is closed."""
        self._order.pop(connection, None)
        self._begun.pop(connection, None)

    def take(self, now: float) -> ClientConnection | None:
        """The first that can be spared; it leaves the order. None: there is none. now: on the loop's clock."""
        found = self.spared(now, 1)
        if not found:
            return None
        self.discard(found[0])
        return found[0]

    def spared(self, now: float, wanted: int) -> list[ClientConnection]:
        """Up to ``wanted`` of those that have idled longest, then of those whose first head is late. now: see take."""
        found = self._spared(self._order, now, wanted)
        return found if len(found) == wanted else found + self._spared(self._begun, now, wanted - len(found))

    def _spared(self, order: OrderedDict[ClientConnection, None], now: float, wanted: int) -> list[ClientConnection]:
        """Those of one of the two. Who isn't what it was leaves it."""
        found: list[ClientConnection] = []
        other: list[ClientConnection] = []
        passed: list[ClientConnection] = []
        for connection in order:
            if not (connection.waits if order is self._order else connection.begins):
                other.append(connection)
            elif connection.spare(now):
                found.append(connection)
            else:
                passed.append(connection)
            if len(found) == wanted or len(passed) == LOOKED_AT:
                break
        for connection in passed:
            order.move_to_end(connection)
        for connection in other:
            # It comes back when its answer has ended.
            del order[connection]
            if connection.begins:
                self._begun[connection] = None
        return found


def _since(connection: ClientConnection) -> float:
    return connection.since
