"""Prompt classes out of the lengths that routers see: where the edges lie, what part each class has, how long it is.

On the engine-signal path (the optimizer's page, Sources). Lengths come as counts by upper bound, as a histogram has
them. Edges are bounds near the terciles, chosen once 1,000 lengths were seen. A changed edge changes every table, so
edges stay while their classes are of any use, and for ten minutes at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

MEMORY: Final = 1800.0  # seconds
MIN_SEEN: Final = 1000.0
# Of what is remembered, so many must stand behind a choice.
MIN_REMEMBERED: Final = 300.0
CLASSES: Final = 3
# Share of requests that a class has when it is chosen, and with which it may stay.
CHOSEN: Final = (0.2, 0.5)
KEPT: Final = (0.15, 0.6)
MIN_SECONDS: Final = 600.0
# A length beyond the last bound, in that bound.
BEYOND: Final = 1.5

Counts = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Counts by upper bound of input tokens (the last one infinite), forgetting with MEMORY; seen: all that came."""

    at: float = -math.inf
    counts: Counts = field(default_factory=dict)
    seen: float = 0.0

    def add(self, at: float, more: Counts) -> Lengths:
        """The lengths after ``more`` that came until ``at``; what is not newer changes nothing."""
        if not (math.isfinite(at) and at > self.at):
            return self
        kept = math.exp(-(at - self.at) / MEMORY) if self.counts else 0.0
        counts = {bound: kept * count for bound, count in self.counts.items()}
        for bound, count in more.items():
            counts[bound] = counts.get(bound, 0.0) + count
        return Lengths(at, counts, self.seen + sum(more.values()))


def classes_of(counts: Counts, edges: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """(count, mean tokens) of each class between the edges; a length in a bucket counts as the bucket's middle.

    The mean of an empty class is the middle of its range.
    """
    totals = [[0.0, 0.0] for _ in range(len(edges) + 1)]
    lower = 0.0
    for bound in sorted(counts):
        middle = (lower + bound) / 2 if math.isfinite(bound) else lower * BEYOND
        entry = totals[sum(middle >= edge for edge in edges)]
        entry[0] += counts[bound]
        entry[1] += counts[bound] * middle
        lower = bound
    middles = [(low + high) / 2 for low, high in pairwise((0.0, *edges))] + [BEYOND * edges[-1] if edges else 0.0]
    return tuple(
        (count, tokens / count if count > 0 else middle)
        for (count, tokens), middle in zip(totals, middles, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges in force, in input tokens (none: one class), and since when."""

    values: tuple[int, ...] = ()
    since: float = -math.inf


def choose(current: Edges, at: float, lengths: Lengths) -> Edges:
    """The edges after ``lengths``: those in force as long as they will do, else the bounds nearest to the terciles."""
    total = sum(lengths.counts.values())
    if lengths.seen < MIN_SEEN or total < MIN_REMEMBERED:
        return current
    if current.values and (at - current.since < MIN_SECONDS or _fit(lengths.counts, current.values, KEPT)):
        return current
    best = _terciles(lengths.counts, total)
    if best == current.values or not _fit(lengths.counts, best, CHOSEN):
        return current
    return Edges(best, at)


def _fit(counts: Counts, edges: Sequence[int], limits: tuple[float, float]) -> bool:
    """Whether every class has a share within the limits."""
    sizes = [count for count, _ in classes_of(counts, edges)]
    return len(sizes) > 1 and all(limits[0] * sum(sizes) <= size <= limits[1] * sum(sizes) for size in sizes)


def _terciles(counts: Counts, total: float) -> tuple[int, ...]:
    """The finite bounds whose part of all lengths is nearest to a third and to two thirds; fewer where one is both."""
    below: dict[int, float] = {}
    running = 0.0
    for bound in sorted(counts):
        running += counts[bound]
        if math.isfinite(bound):
            below[round(bound)] = running / total
    if not below:
        return ()
    return tuple(sorted({_nearest(below, number / CLASSES) for number in range(1, CLASSES)}))


def _nearest(below: Mapping[int, float], part: float) -> int:
    return min(below, key=lambda edge: abs(below[edge] - part))
