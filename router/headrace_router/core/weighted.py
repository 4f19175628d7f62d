"""Evenly spread choice by weight for requests without a key.

On the request path. Stride scheduling: each engine's next turn lies 1/weight after its last, and the earliest turn
serves. Like smooth weighted round robin it spaces an engine's turns evenly (no bursts of the heaviest), but a pick
costs O(log n) instead of O(n). Turns pass from table to table, so that frequent publications don't send every first
request to the same engine. Starting points differ by engine and by the process's phase: processes don't march in step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heapreplace
from math import ceil
from typing import Final

from headrace_router.core.slots import residue

_TWO_30: Final = float(2**30)
# Turns taken one by one before the rest is done in one step of O(n).
_QUICK: Final = 8


class Turns:
    """Whose turn it is. Indices refer to ``ids``; every weight is above 0."""

    __slots__ = ("_heap", "_inherited", "_phase", "clock", "given", "ids", "weights")

    def __init__(
        self, ids: tuple[str, ...], weights: tuple[float, ...], phase: float = 0.0, inherit: Turns | None = None
    ) -> None:
        self.ids = ids
        self.given = weights
        total = sum(weights)
        self.weights = tuple(weight / total for weight in weights)
        self.clock = 0.0
        self._phase = phase
        self._heap: list[tuple[float, int]] | None = None
        # Credits are read at the first turn, not here: until the swap the old table goes on serving.
        self._inherited = inherit

    def next(self) -> int:
        """Index of the engine whose turn it is; the turn is taken."""
        heap = self._heap or self._start()
        at, index = heap[0]
        self.clock = at
        heapreplace(heap, (at + 1.0 / self.weights[index], index))
        return index

    def find(self, accept: Callable[[int], bool]) -> int:
        """Index of the first engine in turn order that ``accept`` takes, its turn taken; -1 if it takes none.

        Turns of the refused ones are lost, not saved up: who comes back later finds no backlog to be served at once.
        """
        for _ in range(min(len(self.ids), _QUICK)):
            index = self.next()
            if accept(index):
                return index
        return self._fast_forward(accept)

    def _fast_forward(self, accept: Callable[[int], bool]) -> int:
        """What taking turns one by one would come to, in one step: a heavy engine may hold thousands before another."""
        ahead = sorted(self._heap or self._start())
        found = next((entry for entry in ahead if accept(entry[1])), None)
        if found is None:
            return -1
        now, index = found
        self.clock = now
        heap = [(self._turn_after(at, other, now, other == index), other) for at, other in ahead]
        heapify(heap)
        self._heap = heap
        return index

    def _turn_after(self, at: float, index: int, now: float, taken: bool) -> float:
        weight = self.weights[index]
        if taken:
            return at + 1.0 / weight
        return at if at >= now else at + ceil((now - at) * weight) / weight

    def near(self, count: int) -> list[int]:
        """About the ``count`` next engines, the next first; no turn is taken."""
        heap = self._heap or self._start()
        return [index for _, index in sorted(heap[:count])]

    def lineage(self) -> Turns | None:
        """Whose credits a successor should read: these turns' if they ever began, else their own predecessor's."""
        return self if self._heap is not None else self._inherited

    def credits(self) -> Mapping[str, float]:
        """By id, the part of a turn's distance that is still to wait."""
        heap = self._heap or self._start()
        return {self.ids[index]: (at - self.clock) * self.weights[index] for at, index in heap}

    def _start(self) -> list[tuple[float, int]]:
        kept: Mapping[str, float] = {}
        if self._inherited is not None:
            kept = self._inherited.credits()
            self._inherited = None
        self._heap = [
            (self._wait(name, kept) / weight, index)
            for index, (name, weight) in enumerate(zip(self.ids, self.weights, strict=True))
        ]
        heapify(self._heap)
        return self._heap

    def _wait(self, name: str, kept: Mapping[str, float]) -> float:
        wait = kept.get(name)
        return (residue(name) / _TWO_30 + self._phase) % 1.0 if wait is None else wait


def succeed(ids: tuple[str, ...], weights: tuple[float, ...], phase: float, before: Turns | None) -> Turns:
    """The turns after a swap: the same ones if nothing changed, else new ones that take over the credits."""
    if before is None:
        return Turns(ids, weights, phase)
    return before if before.ids == ids and before.given == weights else Turns(ids, weights, phase, before.lineage())
