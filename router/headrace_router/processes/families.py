"""What the pages of several processes measure beyond what each of them does: who answers, and how often each ended.

Beside every path. There only with several processes: one that doesn't answer has no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace_router.telemetry.snapshot import Part, Row

UP: Final = Part(
    "headrace_process_up",
    "gauge",
    "1: the process answered for this page; 0: its counters are its last, its gauges missing.",
    ("process",),
    "max",
    (),
    [],
)
RESTARTS: Final = Part(
    "headrace_process_restarts_total",
    "counter",
    "Times that the process was started anew.",
    ("process",),
    "sum",
    (),
    [],
)


def up(heard: Mapping[int, float]) -> Part:
    """Who answered, by process."""
    return _filled(UP, heard)


def restarts(counts: Mapping[int, float]) -> Part:
    """Restarts by process."""
    return _filled(RESTARTS, counts)


def _filled(family: Part, numbers: Mapping[int, float]) -> Part:
    rows: list[Row] = [((str(process),), (float(number),)) for process, number in sorted(numbers.items())]
    return Part(family.name, family.kind, family.text, family.labels, family.merge, family.bounds, rows)
