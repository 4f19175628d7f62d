"""Changes of the weights as people read them: what moved (from the tables) and why (the operator's history). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace_lab.demo.observe import Publication

LEAST_POINTS = 0.01  # of a front-end's traffic; smaller moves are not worth a line
MOST_MOVES = 4
# A line begins with its revision and causes, as "rev 12: demand 80 %, health 20 %; …" (decision/status/audit.py).
_LINE = re.compile(r"^rev (?P<revision>\d+): (?P<causes>[^;]*)")
_CAUSE = re.compile(r"([a-z][a-z ]*) (\d+(?:\.\d+)?) %")


class Change(NamedTuple):
    """One line of the operator's history, and the largest moves of that revision."""

    at: float
    revision: int
    causes: tuple[tuple[str, float], ...]
    moves: tuple[str, ...]
    text: str


def moves(before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The largest moves between two states of the weights (front-end -> engine -> fraction), largest first."""
    found: list[tuple[float, str]] = []
    for frontend in sorted(after):
        old, new = before.get(frontend, {}), after[frontend]
        for engine in sorted({*old, *new}):
            left, right = old.get(engine, 0.0), new.get(engine, 0.0)
            if abs(right - left) >= LEAST_POINTS:
                found.append((-abs(right - left), f"{frontend}: {engine} {left * 100:.0f} -> {right * 100:.0f} %"))
    return tuple(text for _, text in sorted(found)[:MOST_MOVES])


def changes(history: Mapping[str, float], publications: Sequence[Publication]) -> list[Change]:
    """Every line of history seen (line -> seconds of the run), oldest first, joined with its revision's moves.

    A change's instant is its tables' publication; status, which holds the history, may be written later.
    """
    by_revision = _moves_by_revision(publications)
    published: dict[int, float] = {}
    for publication in publications:
        published.setdefault(publication.revision, publication.at)
    joined = []
    for line, at in history.items():
        found = _LINE.match(line)
        number = int(found["revision"]) if found else -1
        causes = tuple((name, float(percent)) for name, percent in _CAUSE.findall(found["causes"] if found else ""))
        joined.append(Change(published.get(number, at), number, causes, by_revision.get(number, ()), line))
    return sorted(joined, key=lambda change: (change.at, change.revision))


def _moves_by_revision(publications: Sequence[Publication]) -> dict[int, tuple[str, ...]]:
    standing: dict[str, Mapping[str, float]] = {}
    result: dict[int, tuple[str, ...]] = {}
    for revision in sorted({publication.revision for publication in publications}):
        after = {p.frontend: p.weights for p in publications if p.revision == revision}
        result[revision] = moves({name: standing.get(name, {}) for name in after}, after)
        standing.update(after)
    return result
