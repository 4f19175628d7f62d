"""What a Publisher needs of the place it publishes to: a state directory, or Kubernetes.

On the routing-weight path. Each port does its I/O before it returns, unless it says otherwise. OSError and KubeFault
mean that this one thing did not come off; NotLeading (of kube/client.py) that nothing may be written any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from headrace_api.base import Metadata
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_api.status import EngineStatus, PolicyStatus
from headrace_api.table import RoutingTable
from headrace_operator.decision.memory import Memory
from headrace_operator.publisher.notes import EventNote
from headrace_operator.publisher.places import Place, Refusal, TableKey
from headrace_operator.publisher.records import Record


class StatusKey(NamedTuple):
    """Kind and ``namespace/name``."""

    kind: str
    id: str


class Tables(Protocol):
    """Tables where routers find them."""

    @property
    def refusals(self) -> Mapping[TableKey, Refusal]:
        """Tables that don't stand as they should, and why."""

    def tables(self) -> tuple[RoutingTable, ...]:
        """All tables that stand, sorted by policy and front-end."""

    def barred(self, places: Mapping[TableKey, Place]) -> frozenset[TableKey]:
        """Whose place is not to be had now, so that nothing need be decided for it; ``refusals`` says why."""

    def publish(self, tables: Iterable[RoutingTable], places: Mapping[TableKey, Place]) -> tuple[RoutingTable, ...]:
        """Write these tables, where none is wanted any more to where they stand. Gives those that now stand."""

    def repair(self, places: Mapping[TableKey, Place]) -> tuple[TableKey, ...]:
        """Write again what someone removed, changed, or wants elsewhere; gives what was written."""

    def remove(self, keys: Iterable[TableKey]) -> tuple[TableKey, ...]:
        """Remove tables that nobody asks for; gives those removed."""


class Statuses(Protocol):
    """Statuses of resources, quiet and coalesced."""

    def set(
        self, resource: RoutingPolicy | InferenceEngine, generation: int, status: PolicyStatus | EngineStatus
    ) -> None:
        """Say what the resource's status is now; it is written by the next flush that may."""

    def set_rejected(self, kind: str, metadata: Metadata, status: PolicyStatus | EngineStatus) -> None:
        """The same of a resource that has no spec in force."""

    def keep_only(self, keys: Collection[StatusKey]) -> None:
        """Forget the statuses of resources that are gone."""

    def flush(self, steady: float, *, all_of_them: bool = False) -> int:
        """Write what differs and may be written; gives the number written. steady: seconds on a steady clock."""


class Events(Protocol):
    """Events, deduplicated."""

    def tell(
        self, notes: Sequence[EventNote], states: Sequence[EventNote], uids: Mapping[StatusKey, str], at: str
    ) -> bool:
        """Tell what happened (notes), and what is still so (states: not told again if it was the last word).

        uids: of the resources. at: now, RFC 3339. Gives whether there was anything to tell.
        """

    def send(self) -> None:
        """Send what waits, if telling did not; waits for nothing."""


class Records(Protocol):
    """What old decisions are explained by."""

    def record(self, record: Record, keep: int, memory: Memory) -> bool:
        """Keep one more publication, and the memory after it; whether it is kept here at all."""

    def remember(self, memory: Memory) -> bool:
        """Keep the memory alone; whether it is kept here at all."""


class Heartbeat(Protocol):
    """The sign of life that routers judge the operator by."""

    def renew(self, steady: float, at: str) -> bool:
        """Renew it unless that was done less than ten seconds ago; whether it was. at: RFC 3339."""


class Stood(NamedTuple):
    """What stood when this term began.

    faults: what can't be read and is left alone. stored: (kind, id, generation, spec) of statuses read back, where
    generations are counted by us. statuses, engine_statuses: by id.
    """

    faults: tuple[str, ...] = ()
    stored: Sequence[tuple[str, str, int, dict[str, Any]]] = ()
    statuses: Mapping[str, PolicyStatus] = {}
    engine_statuses: Mapping[str, EngineStatus] = {}
    revision: int = 0
