"""Fields that exist and have no effect yet: a resource that sets one gets a clear word.

One row a field; whoever builds the behaviour deletes the row. A row says what holds meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headrace_operator.store.faults import Path, shown
from headrace_operator.store.schema_check import Finding


@dataclass(frozen=True)
class NotYet:
    """A field by its path ("*": every entry of a list), the values that have no effect (none: any), what holds."""

    kind: str
    path: tuple[str, ...]
    meanwhile: str
    values: tuple[Any, ...] = ()
    except_values: tuple[Any, ...] = ()


NOT_YET: Final = (
    NotYet(
        "RoutingPolicy",
        ("spec", "strategy", "type"),
        "it sets no weights; right would be Optimized, Nearest, RoundRobin or Static",
        values=("Feedback",),
    ),
)


def without_effect(kind: str, raw: dict[str, Any]) -> Iterator[Finding]:
    """A word for each field of a resource (raw data without nulls) that has no effect yet."""
    for row in NOT_YET:
        if row.kind == kind:
            for path, value in _at(raw, row.path, ()):
                if value not in row.except_values and (not row.values or value in row.values):
                    said = "" if isinstance(value, dict) else f"{shown(value)} "
                    yield Finding(path, shown(value), f"{said}has no effect yet: {row.meanwhile}")


def _at(value: Any, rest: tuple[str, ...], path: Path) -> Iterator[tuple[Path, Any]]:
    """Every value that a path means, with its own path."""
    if not rest:
        yield path, value
    elif rest[0] == "*":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _at(item, rest[1:], (*path, index))
    elif isinstance(value, dict) and rest[0] in value:
        yield from _at(value[rest[0]], rest[1:], (*path, rest[0]))
