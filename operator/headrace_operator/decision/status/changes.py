"""Weights and their changes as lines: who sends what where, now and compared with the last table.

On the routing-weight path; pure. Read from tables alone, so that status says what routers really got.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace_api.status import MAX_WEIGHT_TEXT, MAX_WEIGHTS
from headrace_api.table import ModelRoutes, RoutingTable
from headrace_operator.decision.why.text import fitted, percent
from headrace_operator.snapshot.eligibility import bare_name

NOTICEABLE = 0.0005  # of a front-end's traffic: what prints as 0.1 %


def shares(model: ModelRoutes) -> dict[str, float]:
    """Share of each engine, prompt classes counted alike (a table does not say how large they are)."""
    found: dict[str, float] = {}
    for entry in model.classes:
        total = max(1, sum(route.weight for route in entry.routes))
        for route in entry.routes:
            found[route.engine] = found.get(route.engine, 0.0) + route.weight / total / len(model.classes)
    return found


def weight_lines(tables: Sequence[RoutingTable]) -> tuple[str, ...]:
    """One line a front-end and model, as status shows them."""
    several = len({model.model for table in tables for model in table.models}) > 1
    lines = [
        _line(f"{table.frontend} {model.model}" if several else table.frontend, model)
        for table in sorted(tables, key=lambda table: table.frontend)
        for model in table.models
    ]
    if len(lines) > MAX_WEIGHTS:
        return (*lines[: MAX_WEIGHTS - 1], f"and {len(lines) - MAX_WEIGHTS + 1} more; headrace explain shows all")
    return tuple(lines)


def _line(name: str, model: ModelRoutes) -> str:
    used = sorted(((share, engine) for engine, share in shares(model).items() if share > 0), key=_largest_first)
    refused = _refused(model)
    end = f" ({refused} refused)" if refused else ""
    room = MAX_WEIGHT_TEXT - len(name) - len(end) - 2
    return f"{name}: {fitted([f'{bare_name(engine)} {percent(share)}' for share, engine in used], room)}{end}"


def _largest_first(entry: tuple[float, str]) -> tuple[float, str]:
    return (-entry[0], entry[1])


def _refused(model: ModelRoutes) -> str:
    parts = sorted({(shed.priority, shed.share) for entry in model.classes for shed in entry.shed})
    return ", ".join(f"{percent(share)} of {priority}" for priority, share in parts)


def change_lines(old: Iterable[RoutingTable], new: Iterable[RoutingTable]) -> tuple[str, ...]:
    """What changed, the largest change first: "fe-b: c 0 % -> 17 %, b 100 % -> 83 %"."""
    before = {table.frontend: {model.model: model for model in table.models} for table in old}
    found: list[tuple[float, str]] = []
    tables = sorted(new, key=lambda table: table.frontend)
    several = len({model.model for table in tables for model in table.models}) > 1
    for table in tables:
        for model in table.models:
            name = f"{table.frontend} {model.model}" if several else table.frontend
            found += _changes(name, before.get(table.frontend, {}).get(model.model), model)
    return tuple(line for _, line in sorted(found, key=_largest_first))


def _changes(name: str, old: ModelRoutes | None, new: ModelRoutes) -> list[tuple[float, str]]:
    if old is None:
        return [(1.0, _line(name, new))]
    before, after = shares(old), shares(new)
    moved = [
        (abs(after.get(engine, 0.0) - before.get(engine, 0.0)), engine)
        for engine in sorted(before.keys() | after.keys())
    ]
    moved = sorted([entry for entry in moved if entry[0] >= NOTICEABLE], key=_largest_first)
    parts = _parts([(bare_name(engine), before.get(engine, 0.0), after.get(engine, 0.0)) for _, engine in moved])
    if _refused(old) != _refused(new):
        parts.append(f"refused {_refused(old) or 'nothing'} -> {_refused(new) or 'nothing'}")
    size = sum(amount for amount, _ in moved) / 2
    return [(size, f"{name}: {', '.join(parts)}")] if parts else []


def _parts(moved: Sequence[tuple[str, float, float]]) -> list[str]:
    """Moves of engines' shares, largest first, but for those that read as none; if all do, the largest in full."""
    told = [(name, percent(old), percent(new)) for name, old, new in moved]
    seen = [f"{name} {old} -> {new}" for name, old, new in told if old != new]
    if seen or not moved:
        return seen
    name, old, new = moved[0]
    return [f"{name} {100 * old:.2f} % -> {100 * new:.2f} %"]
