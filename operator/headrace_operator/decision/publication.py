"""Which tables a policy's decision writes, which stand as they are, and which can't be written.

On the routing-weight path; pure. A table is written when its content differs from what stands, never otherwise. What
can't be decided (no answer, frozen, too large, a name that another table has) leaves the old table alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from headrace_api.policy import Frontend
from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.tables.build import build_table, view_of
from headrace_operator.decision.tables.carry import lost_models, refreshed, same_routes, with_lost_models
from headrace_operator.decision.tables.encode import TableTooLarge, configmap_name, content_hash, stamped, too_large
from headrace_operator.decision.tables.slack import held_slack, slack_of
from headrace_operator.decision.why.book import Book
from headrace_operator.snapshot.build_previous import table_order
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.model import PolicyState, Snapshot

Key = tuple[str, str]


class Publication(NamedTuple):
    """Tables of one policy: to write; standing after that; models without any engine; what does not fit.

    taken: names of ConfigMaps that an older policy's table has.
    """

    written: tuple[RoutingTable, ...]
    after: tuple[RoutingTable, ...]
    lost: tuple[str, ...]
    too_large: tuple[TableTooLarge, ...]
    taken: tuple[str, ...]


def key_of(table: RoutingTable) -> Key:
    """Policy id and front-end of a table."""
    return (f"{table.policy_namespace}/{table.policy}", table.frontend)


def standing_tables(
    tables: Iterable[RoutingTable], virtual: Iterable[RoutingTable], snapshot: Snapshot
) -> dict[Key, RoutingTable]:
    """The latest table of each policy and front-end; for a Shadow policy those it would have published."""
    shadow = {policy.id for policy in snapshot.policies if policy.spec.mode == "Shadow"}
    standing = {key_of(table): table for table in sorted(tables, key=table_order)}
    standing |= {key_of(table): table for table in virtual if key_of(table)[0] in shadow}
    return standing


def publish(
    book: Book,
    policy: PolicyState,
    standing: Mapping[Key, RoutingTable],
    *,
    moved: bool,
    news: bool,
    identity: Identity,
    issued: str,
    taken: Mapping[Key, str],
    barred: Collection[Key] = (),
) -> Publication:
    """The tables of one policy.

    moved: its weights were found anew. news: prices and in-flight numbers are to be published even where weights are as
    they were. taken: see ``taken_names``. barred: whose place the shell knows not to be had.
    """
    written: list[RoutingTable] = []
    after: list[RoutingTable] = []
    oversized: list[TableTooLarge] = []
    for frontend in sorted(policy.spec.frontends, key=lambda frontend: frontend.name):
        old = standing.get((policy.id, frontend.name))
        new = None
        if (policy.id, frontend.name) not in taken and (policy.id, frontend.name) not in barred:
            new = _candidate(book, policy, frontend, old, moved=moved, news=news)
        if new is not None and (old is None or content_hash(new) != content_hash(old)):
            table = stamped(new, identity, issued)
            fault = too_large(table)
            if fault is None:
                written.append(table)
                after.append(table)
                continue
            oversized.append(fault)
        if old is not None:
            after.append(old)
    stranded = {source.model for source in book.of_policy(policy.id) if source not in book.routes}
    names = tuple(sorted(name for (owner, _), name in taken.items() if owner == policy.id))
    return Publication(tuple(written), tuple(after), tuple(sorted(stranded)), tuple(oversized), names)


def _candidate(
    book: Book, policy: PolicyState, frontend: Frontend, old: RoutingTable | None, *, moved: bool, news: bool
) -> RoutingTable | None:
    """What should stand at a front-end; None: nothing can be said."""
    if book.solution.status == "Failed" or (policy.frozen and old is not None):
        return None
    view = view_of(book.snapshot, policy, frontend, book.solution)
    slack = held_slack(None if old is None else old.retry.slack, slack_of(view))
    if old is None:
        return build_table(view, slack)
    kept = refreshed(old, policy, frontend, book.states, dict(book.snapshot.bytes_per_token), slack)
    if not moved:
        return kept
    new = build_table(view, slack)
    if new is None:
        return kept
    new = with_lost_models(old, new, lost_models(old, new, policy))
    return kept if not news and same_routes(old, new) else new


def taken_names(snapshot: Snapshot) -> dict[Key, str]:
    """Policy and front-end whose ConfigMap's name an older policy's table has already (by age, then name).

    Two tables under one name would overwrite each other for ever.
    """
    owners: dict[tuple[str, str, str], Key] = {}
    taken: dict[Key, str] = {}
    ruling = [policy for policy in snapshot.policies if policy.spec.mode == "Enforce"]
    for policy in sorted(ruling, key=_age_order):
        for frontend in policy.spec.frontends:
            name = configmap_name(policy.id, frontend)
            place = (frontend.publish.cluster, policy.id.partition("/")[0], name)
            if owners.setdefault(place, (policy.id, frontend.name)) != (policy.id, frontend.name):
                taken[policy.id, frontend.name] = name
    return taken


def _age_order(policy: PolicyState) -> tuple[float, str]:
    created = epoch_seconds(policy.created)
    return (inf if created is None else created, policy.id)


def retained(known: Iterable[Key], snapshot: Snapshot) -> tuple[Key, ...]:
    """Tables that stay when nobody asks for them any more: those said so while their front-end still stood."""
    present = {
        (policy.id, frontend.name): frontend for policy in snapshot.policies for frontend in policy.spec.frontends
    }
    keep = {key for key, frontend in present.items() if frontend.publish.on_delete == "Retain"}
    return tuple(sorted(keep | {key for key in known if key not in present}))


def orphans_of(standing: Iterable[Key], snapshot: Snapshot, keep: Iterable[Key]) -> tuple[Key, ...]:
    """Tables that no policy asks for, retained ones apart."""
    present = {(policy.id, frontend.name) for policy in snapshot.policies for frontend in policy.spec.frontends}
    return tuple(sorted(set(standing) - present - set(keep)))
