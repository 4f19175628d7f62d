"""Metrics as plain values: what one process sends to another, how several processes' become one, and the page of it.

Beside the request path. A snapshot is a series of parts, each small enough to be made, encoded, merged and rendered
between two turns of the loop; a family may come in several. Counters, histograms and summaries of processes add; each
gauge states its own way. Must not know what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal

import msgspec
from prometheus_client.utils import floatToGoString

from headrace_router.telemetry.accumulators import Kind, Numbers

# Lines rendered between two turns of the loop, well under 1 ms; a histogram's child has 17.
STEP: Final = 50
# The label that tells processes apart where a gauge can't be merged.
PROCESS: Final = "process"
# From here on numbers are written with an exponent.
_PLAIN: Final = 1_000_000

Labels = tuple[str, ...]
Row = tuple[Labels, Numbers]
# How a gauge of several processes becomes one; everything but gauges adds.
Merge = Literal["sum", "max", "min", "process"]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of one family. bounds: of a histogram. A row's numbers: what its kind's ``read`` gives."""

    name: str
    kind: Kind
    text: str
    labels: Labels
    merge: Merge
    bounds: tuple[float, ...]
    rows: list[Row]


def lines_of(kind: Kind, bounds: tuple[float, ...]) -> int:
    """Lines of the page that one row takes."""
    return {"histogram": len(bounds) + 3, "summary": 2}.get(kind, 1)


def in_parts(head: Part, rows: Iterable[Row]) -> Iterator[Part]:
    """Parts of at most STEP lines, at least a row each, described as ``head``; one without rows if there are none."""
    most = max(1, STEP // lines_of(head.kind, head.bounds))
    taken: list[Row] = []
    empty = True
    for row in rows:
        taken.append(row)
        if len(taken) == most:
            empty = False
            yield msgspec.structs.replace(head, rows=taken)
            taken = []
    if taken or empty:
        yield msgspec.structs.replace(head, rows=taken)


class Merged:
    """Several processes' metrics as one."""

    def __init__(self) -> None:
        self._heads: dict[str, Part] = {}
        self._rows: dict[str, dict[Labels, Numbers]] = {}

    def add(self, part: Part, process: str, *, ended: bool = False) -> None:
        """Add one process's part. ``ended``: its last before it ended, of which only what was counted still holds.

        Raises:
            ValueError: another process described the family otherwise; nothing was added.
        """
        head = self._heads.get(part.name)
        if head is None:
            head = self._heads[part.name] = msgspec.structs.replace(part, rows=[])
            self._rows[part.name] = {}
        elif (head.kind, head.labels, head.merge, head.bounds) != (part.kind, part.labels, part.merge, part.bounds):
            raise ValueError(f"process {process} describes {part.name} otherwise than the processes before it")
        if part.kind == "gauge" and ended:
            return
        rows = self._rows[part.name]
        for labels, numbers in part.rows:
            key = (*labels, process) if part.merge == "process" else labels
            there = rows.get(key)
            rows[key] = numbers if there is None else _merged(part.merge, there, numbers)

    def parts(self) -> Iterator[Part]:
        """What was added, as one process would have it."""
        for name, head in self._heads.items():
            labels = (*head.labels, PROCESS) if head.merge == "process" else head.labels
            yield from in_parts(
                msgspec.structs.replace(head, labels=labels, merge="sum"), list(self._rows[name].items())
            )


def _merged(how: Merge, one: Numbers, other: Numbers) -> Numbers:
    if how == "max":
        return max(one, other)
    if how == "min":
        return min(one, other)
    return tuple(map(float.__add__, map(float, one), map(float, other)))


async def page(parts: Iterable[Part]) -> bytes:
    """The page in Prometheus' text format, made in steps, so that it never holds up a stream."""
    texts: list[str] = []
    name = ""
    for part in parts:
        if part.name != name:
            name = part.name
            texts.append(f"# HELP {name} {part.text}\n# TYPE {name} {part.kind}\n")
        texts.append(rendered(part))
        if part.rows:
            await asyncio.sleep(0)
    return "".join(texts).encode("utf-8")


def rendered(part: Part) -> str:
    """The lines of one part."""
    name = part.name
    form = ",".join([f'{label}="%s"' for label in part.labels])
    bounds = [*map(_number, part.bounds), "+Inf"]
    lines: list[str] = []
    for values, numbers in part.rows:
        stated = form % tuple(map(_escaped, values))
        braced = f"{{{stated}}}" if stated else ""
        if part.kind == "histogram":
            comma = "," if stated else ""
            so_far = 0.0
            for bound, count in zip(bounds, numbers[:-1], strict=True):
                so_far += count
                lines.append(f'{name}_bucket{{{stated}{comma}le="{bound}"}} {_number(so_far)}\n')
            lines.append(f"{name}_count{braced} {_number(so_far)}\n{name}_sum{braced} {_number(numbers[-1])}\n")
        elif part.kind == "summary":
            count, total = numbers
            lines.append(f"{name}_count{braced} {_number(count)}\n{name}_sum{braced} {_number(total)}\n")
        else:
            lines.append(f"{name}{braced} {_number(numbers[0])}\n")
    return "".join(lines)


def _number(value: float) -> str:
    # What most numbers are; the rest is prometheus-client's to write.
    if 0 <= value < _PLAIN and value == int(value):
        return f"{int(value)}.0"
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


# Names of engines, models and policies, again and again.
@lru_cache(maxsize=8192)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
