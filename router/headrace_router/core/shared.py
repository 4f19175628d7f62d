"""Counts that the processes of one router have in common: each writes its own cells, and reads the others' with them.

On the request path of routers of several processes, pure. ``in_flight`` of engines, endpoints and pools is the sum over
all processes, ``own`` this one's part; the selection can't tell the difference. A cell is one aligned word with one
writer, so that nothing is locked and nothing is lost; whoever ends without giving back has his cells cleared by others.
Must not touch a cell of another process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import Struct
from typing import Any, Final, Protocol

from headrace_router.core.admission import Entered, Waiter, WaitQueue
from headrace_router.core.state import EndpointState, EngineState, Pool
from headrace_router.core.states import States

# A row's fields, each with a cell for every process. Engines and endpoints use the first alone, queues too.
IN_FLIGHT: Final = 0
RETURNED: Final = 1
WANTS_SINCE: Final = 2
WANTED_AT: Final = 3
FIELDS: Final = 4
# Of the row of clients' connections: when a process last looked at a new one; below 0, it surely had no room for it.
LOOKED_AT: Final = WANTED_AT
# Microseconds that a connection is left to a process that doesn't look at it: many a turn of a busy loop.
UNSEEN_US: Final = 500_000
# Microseconds after which a process that was refused and doesn't ask again no longer wants anything.
WANTS_US: Final = 200_000


class Memory(Protocol):
    """Rows of ``FIELDS * processes`` cells (int64) in ``numbers``. process: this one, from 0."""

    numbers: memoryview
    process: int
    processes: int

    def claim(self, key: str) -> int:
        """The index of the first cell of the row that all processes have for ``key``; -1 if there is none left."""

    def release(self, row: int) -> None:
        """One claim less."""


class Cells:
    """One object's part of a row: the process's cell is the sum over its objects of the same key.

    An engine that leaves and comes back is another object; what still runs on the first counts for the others. Whoever
    counts on every request writes ``numbers[at]`` himself. other: of two processes the other's, else -1. read(numbers,
    begin): all processes' requests in flight.
    """

    __slots__ = ("_memory", "at", "begin", "numbers", "other", "read", "returned", "row")

    def __init__(self, memory: Memory, key: str) -> None:
        row = memory.claim(key)
        self._memory = memory
        self.row = row
        self.numbers = memory.numbers
        if row < 0:
            # Better counted alone than not at all.
            self.numbers = memoryview(bytearray(8 * FIELDS * memory.processes)).cast("q")
        first = max(row, 0)
        self.at = first + memory.process
        self.returned = self.at + RETURNED * memory.processes
        self.read: Callable[[memoryview, int], tuple[int, ...]] = Struct(f"{memory.processes}q").unpack_from
        self.begin = 8 * first
        self.other = first + 1 - memory.process if memory.processes == 2 else -1

    def __del__(self) -> None:
        if self.row >= 0:
            self._memory.release(self.row)

    def add(self, number: int) -> None:
        """To this process's requests in flight."""
        self.numbers[self.at] += number

    def others(self) -> int:
        """The other processes' requests in flight."""
        if self.other >= 0:
            return self.numbers[self.other]
        return sum(self.read(self.numbers, self.begin)) - self.numbers[self.at]

    def mine(self, field: int) -> int:
        """This process's cell of a field."""
        return self.numbers[self.at + field * self._memory.processes]

    def of(self, field: int) -> tuple[int, ...]:
        """A field's cells of all processes."""
        return self.read(self.numbers, self.begin + 8 * field * self._memory.processes)

    def put(self, field: int, number: int) -> None:
        """This process's cell of a field."""
        self.numbers[self.at + field * self._memory.processes] = number


class SharedEndpoint(EndpointState):
    """An address with requests of all processes; its health is this process's own experience."""

    __slots__ = ("at", "cells", "numbers", "other")

    def __init__(self, url: str, who: str, cells: Cells) -> None:
        super().__init__(url, who)
        self.cells = cells
        self.numbers, self.at, self.other = cells.numbers, cells.at, cells.other

    @property
    def in_flight(self) -> int:
        if self.other >= 0:
            return self.own + self.numbers[self.other]
        return self.own + self.cells.others()

    def take(self) -> None:
        """One more request in flight."""
        self.own += 1
        self.numbers[self.at] += 1

    def give_back(self) -> None:
        """The request ended, whichever way."""
        self.own -= 1
        self.numbers[self.at] -= 1


class SharedPool(Pool):
    """Engines of one model, their requests in all processes, and which processes want more of them than they got."""

    __slots__ = ("at", "cells", "numbers", "returned")

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.cells = cells
        self.numbers, self.at, self.returned = cells.numbers, cells.at, cells.returned

    @property
    def in_flight(self) -> int:
        return self.own + self.cells.others()

    @property
    def changes(self) -> int:
        """Grows with what any process gives back too, so that no process believes an old refusal."""
        return self._changes + sum(self.cells.of(RETURNED))

    def recount(self, own: int) -> None:
        """Requests in flight of this process are ``own``: its engines are others now."""
        self.cells.add(own - self.own)
        self.own = own

    def take(self) -> None:
        """One more request in flight."""
        self.own += 1
        self.numbers[self.at] += 1

    def give_back(self) -> None:
        """The request ended."""
        self.own -= 1
        self.numbers[self.at] -= 1
        self.numbers[self.returned] += 1

    def wants(self, now_us: int) -> None:
        """This process was refused for want of room."""
        if not self.cells.mine(WANTS_SINCE) or now_us - self.cells.mine(WANTED_AT) > WANTS_US:
            self.cells.put(WANTS_SINCE, now_us)
        self.cells.put(WANTED_AT, now_us)

    def got(self) -> None:
        """It wanted and has got something."""
        if self.cells.mine(WANTS_SINCE):
            self.cells.put(WANTS_SINCE, 0)


class SharedEngine(EngineState):
    """An engine with requests of all processes. held_back: places counted as taken, because others wait for them."""

    __slots__ = ("at", "begin", "cells", "held_back", "memory", "numbers", "other", "read")

    def __init__(self, engine: str, memory: Memory) -> None:
        super().__init__(engine)
        self.held_back = 0
        self.memory = memory
        self.cells = cells = Cells(memory, f"engine {engine}")
        self.read, self.begin = cells.read, cells.begin
        self.numbers, self.at, self.other = cells.numbers, cells.at, cells.other

    @property
    def in_flight(self) -> int:
        if self.other >= 0:
            return self.own + self.numbers[self.other] + self.held_back
        numbers = self.numbers
        return self.own + sum(self.read(numbers, self.begin)) - numbers[self.at] + self.held_back

    def endpoint(self, url: str, who: str = "") -> SharedEndpoint:
        """The state of a new address of it."""
        return SharedEndpoint(url, who, Cells(self.memory, f"endpoint {self.id} {url}"))

    def take(self, endpoint: EndpointState) -> None:
        """One more request in flight."""
        super().take(endpoint)
        self.numbers[self.at] += 1

    def give_back(self, endpoint: EndpointState) -> None:
        """The request ended, whichever way."""
        super().give_back(endpoint)
        self.numbers[self.at] -= 1


class SharedQueue(WaitQueue):
    """A policy's queue: its bound is on who waits in all processes, its order this process's own."""

    __slots__ = ("cells",)

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        super().__init__()

    def elsewhere(self) -> int:
        """Who waits in the other processes."""
        return self.cells.others()

    def enter(self, priority: int, now: float, tag: Any = None) -> Entered:
        """A place in the queue, or none; maybe at the cost of a waiter of lower priority."""
        entered = super().enter(priority, now, tag)
        if entered.waiter is not None:
            self.cells.add(1)
        return entered

    def leave(self, waiter: Waiter) -> None:
        """The waiter goes. Twice is harmless."""
        if waiter.waiting:
            self.cells.add(-1)
        super().leave(waiter)


class SharedConnections:
    """How many of clients' connections each process has, and whether it has room: new ones go where there are few."""

    def __init__(self, memory: Memory) -> None:
        self._process = memory.process
        self._cells = Cells(memory, "connections")
        # When those last looked that didn't for too long: one that hangs is waited for once.
        self._hung: dict[int, int] = {}

    def leaves(self, own: int, room: bool, now: float, since: float | None) -> bool:
        """Tell how many this process has, and whether it has room for one; whether a new one is left to another.

        now: monotonic seconds, the same in all processes. since: when that connection was first left; None: it wasn't.
        """
        now_us = int(now * 1e6)
        more = self.more(own)
        # Not at the first look: what has just ended is counted for a turn of the loop.
        none = not room and since is not None
        self._cells.put(LOOKED_AT, -now_us if none else now_us)
        if room:
            return more and since is None
        return self._room_elsewhere(now_us, None if since is None else int(since * 1e6))

    def _room_elsewhere(self, now_us: int, since_us: int | None) -> bool:
        """Whether another process takes what came at ``since_us``, or may yet: it had room, or hasn't looked since."""
        counts, looks = self._cells.of(IN_FLIGHT), self._cells.of(LOOKED_AT)
        for process, (count, look) in enumerate(zip(counts, looks, strict=True)):
            if not count or process == self._process:
                continue
            if since_us is None:
                return True
            if self._hung.get(process) == look:
                continue
            if now_us - max(abs(look), since_us) >= UNSEEN_US:
                self._hung[process] = look
            elif look > 0 or -look < since_us:
                return True
        return False

    def more(self, own: int) -> bool:
        """Tell that this process has ``own``; whether that is more than another has, by an eighth at least."""
        # One more than there are: 0 is who isn't there.
        self._cells.put(IN_FLIGHT, own + 1)
        counts = self._cells.of(IN_FLIGHT)
        least = min((count for count in counts if count), default=1) - 1
        return own > least + (least >> 3)


class SharedStates(States):
    """Makes state that the processes of one router share by ``memory``."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.processes = memory.processes

    def engine(self, engine: str) -> EngineState:
        """A new engine's state."""
        return SharedEngine(engine, self.memory)

    def pool(self, engines: Collection[str]) -> Pool:
        """A new pool's; engines: the ids of its members."""
        return SharedPool(Cells(self.memory, f"pool {' '.join(sorted(engines))}"))

    def queue(self, policy: str) -> WaitQueue:
        """A new policy's queue."""
        return SharedQueue(Cells(self.memory, f"queue {policy}"))
