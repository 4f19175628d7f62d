"""What one leader, or start, hands to the next: out of a memory that was kept, else out of tables and statuses.

On the routing-weight path, once a term; pure. In a cluster nothing is kept but what people and routers read anyway.
That says which engines are penalised and why, what is shed, and how prompts were measured, so that a takeover neither
forgives a slow engine nor opens what is closed. Savings and causes before the takeover are not known any more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from headrace_api.names import AVAILABLE, PENALIZED
from headrace_api.status import EngineStatus
from headrace_api.table import RoutingTable
from headrace_operator.decision.memory import Memory
from headrace_operator.snapshot.signals import Factor, SignalStatus

_PENALTY: Final = re.compile(r"x(0(?:\.\d{1,6})?)")  # as engine statuses show it: below 1


class Restored(NamedTuple):
    """The memory that the first decision starts from, and what the loader is to know until samples speak."""

    memory: Memory
    punished: Mapping[str, Factor] = {}
    trimmed: Mapping[str, Factor] = {}
    dead: tuple[str, ...] = ()
    ratios: tuple[tuple[str, float], ...] = ()
    edges: tuple[int, ...] = ()


def remembered(memory: Memory) -> Restored:
    """Out of the memory of the last start."""
    last = memory.last
    if last is None:
        return Restored(memory)
    return Restored(
        memory,
        punished={engine.id: engine.penalty for engine in last.engines if engine.penalty.value < 1},
        trimmed={engine.id: engine.trim for engine in last.engines if engine.trim.value != 1},
        dead=tuple(engine.id for engine in last.engines if not engine.alive),
        ratios=last.bytes_per_token,
        edges=last.class_edges,
    )


def taken_over(
    tables: Collection[RoutingTable],
    engines: Mapping[str, EngineStatus],
    retained: Iterable[tuple[str, str]] = (),
) -> Restored:
    """Out of the tables that stand and the statuses of engines, by id. retained: (policy, front-end) to be kept."""
    newest = max(tables, key=lambda table: table.issued, default=None)
    return Restored(
        Memory(shedding=tuple(sorted(shedding_policies(tables))), retained=tuple(sorted(retained))),
        punished={name: factor for name, status in sorted(engines.items()) if (factor := _penalty(status)) is not None},
        dead=tuple(name for name, status in sorted(engines.items()) if _dead(status)),
        ratios=tuple(
            sorted({entry.model: entry.bytes_per_token for table in _by_age(tables) for entry in table.models}.items())
        ),
        edges=newest.class_edges if newest is not None else (),
    )


def shedding_policies(tables: Iterable[RoutingTable]) -> frozenset[str]:
    """Ids of policies whose tables refuse something."""
    return frozenset(
        f"{table.policy_namespace}/{table.policy}"
        for table in tables
        if any(shed.share > 0 for routed in table.models for routes in routed.classes for shed in routes.shed)
    )


def _by_age(tables: Iterable[RoutingTable]) -> list[RoutingTable]:
    return sorted(tables, key=lambda table: table.issued)


def _penalty(status: EngineStatus) -> Factor | None:
    """The penalty that the status shows; whatever else stands there is none."""
    found = _PENALTY.fullmatch(status.penalty)
    if found is None:
        return None
    message = next((one.message for one in status.conditions if one.type == PENALIZED and one.status == "True"), "")
    return Factor(value=float(found[1]), reason=message.removeprefix(f"{status.penalty}: "))


def _dead(status: EngineStatus) -> bool:
    return any(one.type == AVAILABLE and one.reason == "NotAlive" for one in status.conditions)


def all_fresh(states: Iterable[SignalStatus], frontends: Collection[str]) -> bool:
    """Whether every signal is fresh and each of these front-ends' demand is among them."""
    found = {state.name: state.state for state in states}
    told = {part[2] for part in (name.split() for name in found) if part[0] == "demand" and len(part) > 2}
    return bool(found) and set(frontends) <= told and set(found.values()) == {"Fresh"}
