"""What one decision hands to the next: the world as last seen and as last published, and what has to persist.

On the routing-weight path; pure. JSON-encodable, so that a record or a restart can keep it. Without it the operator
works on: tables and history stand elsewhere, only causes before the start are unknown and savings begin anew.
"""

from __future__ import annotations

from typing import Final

from headrace_api.table import RoutingTable
from headrace_operator.snapshot.model import SavingSince, Snapshot, SnapshotStruct

OPENING_READINGS: Final = 2  # readings in a row above the reachable capacity before anything is shed (the optimizer)


class Over(SnapshotStruct, frozen=True, kw_only=True):
    """A component whose demand exceeded the reachable capacity: how often in a row, and at which reading last."""

    policies: tuple[str, ...]
    readings: int
    demand: tuple[float, ...]

    @property
    def opened(self) -> bool:
        """Whether that is enough to shed."""
        return self.readings >= OPENING_READINGS


class Memory(SnapshotStruct, frozen=True, kw_only=True):
    """Hand back what the last Decision returned; ``Memory()`` at first start.

    last: the snapshot of the last tick. published: that of the last change of weights, which causes are told against.
    savings, shedding: arguments of the next snapshot. shadow: tables that Shadow policies would publish. retained:
    (policy, front-end) whose tables stay when nobody asks for them any more.
    """

    last: Snapshot | None = None
    published: Snapshot | None = None
    savings: tuple[SavingSince, ...] = ()
    shedding: tuple[str, ...] = ()
    over: tuple[Over, ...] = ()
    shadow: tuple[RoutingTable, ...] = ()
    retained: tuple[tuple[str, str], ...] = ()


def demand_reading(snapshot: Snapshot, policies: tuple[str, ...]) -> tuple[float, ...]:
    """What tells one reading of a component's demand from the next: its rates."""
    return tuple(entry.requests_per_second for entry in snapshot.demand if entry.policy in policies)


def after_reading(known: Over | None, policies: tuple[str, ...], demand: tuple[float, ...]) -> Over:
    """The count after a tick that saw too much demand; the same reading seen again does not count twice."""
    if known is None:
        return Over(policies=policies, readings=1, demand=demand)
    if known.demand == demand:
        return known
    return Over(policies=policies, readings=min(known.readings + 1, OPENING_READINGS), demand=demand)
