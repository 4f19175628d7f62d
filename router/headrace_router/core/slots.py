"""Affinity: a key's slot, and each slot's order of engines, the same in every router process.

On the request path. A key maps to one of SLOTS slots by an unsalted digest; a slot's order is weighted rendezvous
(each engine draws an exponential arrival time with its weight as rate; the earliest serves): with rates instead of
ranges, a change of weights moves only keys that have to move, and a lost engine's keys spread over the others by
weight. Plain rendezvous over thousands of engines is too slow, so above FLAT engines it runs through two levels of
stable groups. Must not depend on list order, process, PYTHONHASHSEED or what was loaded before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, islice
from math import log
from typing import Final

SLOTS: Final = 16_384
# 256 arrivals take about 50 us in CPython, half of what a first pick may take; the second level costs that again.
FLAT: Final = 256
GROUPS: Final = 32
# How many engines a pick compares at most; two random ones already spread well, 64 find the cheapest nearly always.
CANDIDATES: Final = 64
# The largest prime below 2**30: products of two residues stay in CPython's fast two-digit integers.
_PRIME: Final = 1_073_741_789
_LOG_PRIME: Final = log(_PRIME)
# Whole orders (about 2 KiB each at 256 engines) kept for slots that spilled or lost their first engine.
_KEPT_ORDERS: Final = 1_024
# Keys whose slots are known: sessions ask again and again. At most some 2 MiB.
_MOST_KNOWN: Final = 16_384
_KNOWN_KEY: Final = 64
_KNOWN: Final[dict[bytes, int]] = {}


def slot_of(key: bytes) -> int:
    """The slot of an affinity key, 0 to SLOTS - 1. Short ones that came lately are known."""
    slot = _KNOWN.get(key)
    if slot is None:
        slot = int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % SLOTS
        if len(key) <= _KNOWN_KEY:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = slot
    return slot


@lru_cache(maxsize=16_384)
def residue(name: str) -> int:
    """An engine's own constant, 1 to _PRIME - 1, from its id alone."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % (_PRIME - 1) + 1


def _draws(slot: int) -> tuple[int, int]:
    """A slot's two constants: a mask and a multiplier. Together with an engine's residue they give its draw."""
    digest = blake2b(slot.to_bytes(4, "big"), digest_size=16, person=b"headrace.slot").digest()
    mask = int.from_bytes(digest[:8], "big") % _PRIME
    return mask, int.from_bytes(digest[8:], "big") % (_PRIME - 1) + 1


_Row = tuple[int, float, int]  # residue, 1 / weight, index


def _first(rows: Sequence[_Row], mask: int, factor: int) -> int:
    best = float("inf")
    chosen = -1
    for residue, inverse, index in rows:
        arrival = (_LOG_PRIME - log((residue ^ mask) * factor % _PRIME + 0.5)) * inverse
        if arrival < best:
            best = arrival
            chosen = index
    return chosen


def _order(rows: Sequence[_Row], mask: int, factor: int) -> list[int]:
    arrivals = [
        ((_LOG_PRIME - log((residue ^ mask) * factor % _PRIME + 0.5)) * inverse, index)
        for residue, inverse, index in rows
    ]
    arrivals.sort()
    return [index for _, index in arrivals]


class SlotOrders:
    """Each slot's order of the given ids (unique, sorted, every weight above 0), computed when first asked for.

    Indices refer to ``ids``. Warm ``first`` is one array look-up. Made where a table is read, off the request path:
    digesting thousands of ids takes milliseconds, once.
    """

    __slots__ = ("_firsts", "_groups", "_members", "_orders", "ids", "weights")

    def __init__(self, ids: tuple[str, ...], weights: tuple[float, ...]) -> None:
        assert list(ids) == sorted(set(ids)) and all(weight > 0 for weight in weights)
        self.ids = ids
        self.weights = weights
        rows = [
            (residue(name), 1.0 / weight, index) for index, (name, weight) in enumerate(zip(ids, weights, strict=True))
        ]
        self._groups, self._members = ([], [rows]) if len(rows) <= FLAT else _grouped(rows, weights)
        self._firsts: array[int] | None = None
        self._orders: dict[int, tuple[int, ...]] = {}

    def first(self, slot: int) -> int:
        """Index of the slot's first engine."""
        firsts = self._firsts
        if firsts is None:
            firsts = self._firsts = array("h", [-1]) * SLOTS
        index = firsts[slot]
        if index < 0:
            mask, factor = _draws(slot)
            group = _first(self._groups, mask, factor) if self._groups else 0
            index = firsts[slot] = _first(self._members[group], mask, factor)
        return index

    def order(self, slot: int) -> tuple[int, ...]:
        """The slot's order from its first engine on: all of it up to FLAT engines, else at least CANDIDATES."""
        order = self._orders.get(slot)
        if order is None:
            if len(self._orders) >= _KEPT_ORDERS:
                self._orders.clear()
            found: list[int] = []
            for part in self._parts(slot):
                found += part
                if self._groups and len(found) >= CANDIDATES:
                    break
            order = self._orders[slot] = tuple(found)
        return order

    def walk(self, slot: int) -> Iterator[int]:
        """Every index in the slot's order; what lies beyond ``order`` is computed as it is reached."""
        known = self.order(slot)
        yield from known
        if len(known) < len(self.ids):
            yield from islice(chain.from_iterable(self._parts(slot)), len(known), None)

    def _parts(self, slot: int) -> Iterator[list[int]]:
        mask, factor = _draws(slot)
        for group in _order(self._groups, mask, factor) if self._groups else (0,):
            yield _order(self._members[group], mask, factor)


def _grouped(rows: list[_Row], weights: tuple[float, ...]) -> tuple[list[_Row], list[list[_Row]]]:
    """Groups by the ids' own residues, so that an engine's group never depends on which others there are."""
    members: dict[int, list[_Row]] = {}
    for row in rows:
        members.setdefault(row[0] % GROUPS, []).append(row)
    groups = []
    for place, number in enumerate(sorted(members)):
        weight = sum(weights[row[2]] for row in members[number])
        groups.append((residue(f"group/{number}"), 1.0 / weight, place))
    return groups, [members[number] for number in sorted(members)]
