"""Statuses after a kill: what the tables show to have been published, and no status file tells yet.

On the routing-weight path, once a start. Tables are written at once, statuses at most every few seconds; whoever is
killed between the two left tables that routers follow and an audit that knows nothing of them. The record of the
publication has the status; where even that was not written, the tables say what stands, and that causes are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from headrace_api.status import PolicyStatus, PolicySummary
from headrace_api.table import RoutingTable
from headrace_operator.decision.status.audit import published_unseen
from headrace_operator.publisher.records import RECORDS, recorded_revisions


class _Recorded(msgspec.Struct, frozen=True):
    """The part of a record that recovery reads."""

    statuses: tuple[tuple[str, PolicyStatus], ...] = ()


def recovered(
    state: Path | None, statuses: Mapping[str, PolicyStatus], tables: Sequence[RoutingTable]
) -> dict[str, PolicyStatus]:
    """Statuses by policy id that know every table that stands.

    state: where records are kept, if they are. tables: sorted by policy.
    """
    found = dict(statuses)
    behind: dict[str, list[RoutingTable]] = {}
    for name, group in groupby(tables, key=lambda table: f"{table.policy_namespace}/{table.policy}"):
        standing = list(group)
        if _revision(found.get(name)) < max(table.identity.revision for table in standing):
            behind[name] = standing
    if not behind:
        return found
    oldest = min(_revision(found.get(name)) for name in behind)
    for revision in () if state is None else recorded_revisions(state):
        for name, status in _recorded(state, revision) if revision > oldest else ():
            newest = max((table.identity.revision for table in behind.get(name, [])), default=0)
            if _revision(found.get(name)) < status.summary.revision <= newest:
                found[name] = status
    for name, standing in behind.items():
        if _revision(found.get(name)) < max(table.identity.revision for table in standing):
            found[name] = published_unseen(found.get(name, PolicyStatus()), standing)
    return found


def _revision(status: PolicyStatus | None) -> int:
    return (status.summary if status is not None else PolicySummary()).revision


def _recorded(state: Path | None, revision: int) -> tuple[tuple[str, PolicyStatus], ...]:
    if state is None:
        return ()
    try:
        return msgspec.json.decode((state / RECORDS / f"{revision}.json").read_bytes(), type=_Recorded).statuses
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return ()
