"""What a metric's child is: a number or a few that one thread adds to.

On the request path. prometheus-client's children take a lock and walk their buckets on every use, which costs more than
all else that is counted; the loop is one thread, so that a plain attribute does. Hot callers add to ``value`` and
``total`` themselves. Must not know names, labels or pages.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from mypy_extensions import i64

Kind = Literal["counter", "gauge", "histogram", "summary"]
# What a child holds, in an order of its kind's own: see each ``read``.
Numbers = tuple[float, ...]


class Counter:
    """Only ever grows. ``read``: (value)."""

    __slots__ = ("value",)
    kind: ClassVar[Kind] = "counter"

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Add; ``amount`` is never negative."""
        self.value += amount

    def read(self) -> Numbers:
        return (self.value,)


class Gauge:
    """Stands at something. ``read``: (value)."""

    __slots__ = ("value",)
    kind: ClassVar[Kind] = "gauge"

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """What it stands at from now on."""
        self.value = value

    def read(self) -> Numbers:
        return (self.value,)


class Summary:
    """A sum and of how many, without quantiles. ``read``: (count, total)."""

    __slots__ = ("count", "total")
    kind: ClassVar[Kind] = "summary"

    def __init__(self) -> None:
        self.count = 0.0
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.count += 1
        self.total += value

    def read(self) -> Numbers:
        return (self.count, self.total)


class Histogram:
    """Counts between bounds. ``read``: (count up to each bound and above the one before …, count above all, total)."""

    __slots__ = ("bounds", "counts", "total")
    kind: ClassVar[Kind] = "histogram"

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more; a value on a bound belongs below it."""
        # bisect_left, which costs a compiled caller more than the search.
        bounds = self.bounds
        low: i64 = 0
        high: i64 = len(bounds)
        while low < high:
            middle = (low + high) >> 1
            if bounds[middle] < value:
                low = middle + 1
            else:
                high = middle
        self.counts[low] += 1
        self.total += value

    def read(self) -> Numbers:
        return (*self.counts, self.total)


Child = Counter | Gauge | Histogram | Summary
