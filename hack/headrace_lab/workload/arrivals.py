"""Arrival times at a wanted rate out of a measured arrival process, by rescaling time.

The trace is read as a process of mean rate one (operational time); its k-th event happens when the wanted rate's
integral reaches the k-th event's operational time. So bursts keep their shape relative to the rate, a surge is exact,
and nothing is drawn by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace_lab.workload.traces import Arrival


class Rate(NamedTuple):
    """Requests per second from ``since`` (seconds of the run) on."""

    since: float
    per_second: float


def operational_times(arrivals: Sequence[Arrival], first: int) -> Iterator[tuple[float, int]]:
    """(time in units of the mean gap, output tokens), endless: from arrival ``first`` on, around the trace again.

    The gap between the last and the first arrival is the mean gap.
    """
    gap = arrivals[-1].at / (len(arrivals) - 1)
    lap = len(arrivals) * gap
    origin = arrivals[first % len(arrivals)].at
    position = first % len(arrivals)
    laps = 0
    while True:
        arrival = arrivals[position]
        yield (arrival.at - origin + laps * lap) / gap, arrival.output_tokens
        position += 1
        if position == len(arrivals):
            position, laps = 0, laps + 1


def rescaled(events: Iterator[tuple[float, int]], rates: Sequence[Rate], until: float) -> Iterator[tuple[float, int]]:
    """Events at the times where the integral of ``rates`` reaches their operational time, up to ``until`` seconds.

    ``rates``: ascending ``since``, the first at 0.
    """
    spans = [
        (left.since, min(right.since, until), left.per_second)
        for left, right in pairwise([*rates, Rate(until, 0.0)])
        if left.since < until
    ]
    passed = 0.0
    event = next(events)
    for start, end, rate in spans:
        grown = (end - start) * rate
        while event[0] < passed + grown:
            yield start + (event[0] - passed) / rate, event[1]
            event = next(events)
        passed += grown
