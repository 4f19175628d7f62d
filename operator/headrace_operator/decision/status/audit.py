"""A policy's status: the audit that kubectl describe prints, written only when something is news.

On the routing-weight path; pure. Figures, weights and sentences are those of the last published decision; conditions
and signal states follow the tick. What did not change is carried over word for word, so that the shell can compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from headrace_api.status import (
    MAX_FIGURE,
    MAX_HISTORY,
    MAX_HISTORY_TEXT,
    MAX_SIGNAL_TEXT,
    MAX_SIGNALS,
    LatencyParts,
    PolicyStatus,
    PolicySummary,
    clip,
)
from headrace_api.table import RoutingTable
from headrace_operator.decision.status.changes import change_lines, weight_lines
from headrace_operator.decision.status.findings import concerned, not_read_yet
from headrace_operator.decision.why.attribution import Causes
from headrace_operator.decision.why.book import Book, per_second
from headrace_operator.decision.why.expected import Expected
from headrace_operator.decision.why.text import fitted, latency, percent, plural, rate
from headrace_operator.snapshot.model import PolicyState, Snapshot


def summary_of(book: Book, policy: PolicyState, tables: Sequence[RoutingTable], changed: str) -> PolicySummary:
    """The decision in figures, over all engines that the policy may use."""
    sources = book.of_policy(policy.id)
    demand = sum(book.sources[source].demand for source in sources)
    refused = sum(book.shed(source) for source in sources)
    routes = [route for source in sources for route in book.routes.get(source, [])]
    eligible = sorted({route.engine for route in routes})
    used = sorted({route.engine for source in sources for route in book.used(source)})
    engines = [book.engines[name] for name in used]
    load, capacity = sum(engine.load for engine in engines), sum(engine.capacity for engine in engines)
    reach = sum(per_second(book.engines[name], book.engines[name].capacity) for name in eligible)
    mean = Expected(book.snapshot, book.solution).mean(routes)
    return PolicySummary(
        demand=rate(demand),
        capacity=rate(reach),
        utilization=percent(load / capacity) if capacity > 0 else "",
        engines=f"{len(used)} of {len(eligible)}",
        latency=LatencyParts(
            total=latency(mean.total),
            network=latency(mean.network),
            ttft=latency(mean.ttft),
            decode=latency(mean.decode),
        )
        if mean
        else LatencyParts(),
        shed=percent(refused / demand) if demand > 0 else "",
        revision=max((table.identity.revision for table in tables), default=0),
        hash=_hash(tables),
        solver=clip(book.solution.status if book.priced else book.result.strategy, MAX_FIGURE),
        changed=changed or None,
    )


def _hash(tables: Sequence[RoutingTable]) -> str:
    """The table's hash, or one over the hashes of several."""
    hashes = [table.hash for table in sorted(tables, key=lambda table: table.frontend)]
    return hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode()).hexdigest()


def history_line(at: str, revision: int, causes: Causes, changes: Sequence[str], edits: str = "") -> str:
    """One change: when, which revision, causes in percent, who edited what, the largest changes."""
    why = ", ".join(f"{cause} {share} %" for cause, share in causes) or "first weights"
    head = f"{at} rev {revision}: {why}" + (f" ({edits})" if edits else "")
    room = MAX_HISTORY_TEXT - len(head) - 2
    return clip(f"{head}; {fitted(list(changes), room, '; ')}" if changes else head, MAX_HISTORY_TEXT)


def with_history(old: PolicyStatus, line: str) -> tuple[str, ...]:
    """The line before the older ones; the oldest falls out."""
    return (clip(line, MAX_HISTORY_TEXT), *old.history)[:MAX_HISTORY]


def published_unseen(old: PolicyStatus, tables: Sequence[RoutingTable]) -> PolicyStatus:
    """Status of tables that stand although nothing else of their publication was kept: it ended half-way."""
    newest = max(tables, key=lambda table: table.identity.revision)
    line = (
        f"{newest.issued} rev {newest.identity.revision}: the operator ended while publishing, causes are not known; "
        + "; ".join(weight_lines(tables))
    )
    return msgspec.structs.replace(
        old,
        as_of=newest.issued,
        summary=msgspec.structs.replace(
            old.summary, revision=newest.identity.revision, hash=_hash(tables), changed=newest.issued
        ),
        weights=weight_lines(tables),
        why=(),
        history=with_history(old, clip(line, MAX_HISTORY_TEXT)),
    )


def signal_lines(policy: PolicyState, book: Book, snapshot: Snapshot) -> tuple[str, ...]:
    """Signals that are not fresh, the longest standing first; those that may still come are left out."""
    stale = [
        state
        for state in concerned(policy, book, snapshot.states)
        if state.state != "Fresh" and not not_read_yet(state, policy, snapshot.at)
    ]
    stale.sort(key=lambda state: (state.since, state.name))
    lines = [
        clip(f"{state.name}: {state.state}" + (f" since {state.since}" if state.since else ""), MAX_SIGNAL_TEXT)
        for state in stale
    ]
    if len(lines) <= MAX_SIGNALS:
        return tuple(lines)
    return (*lines[: MAX_SIGNALS - 1], f"and {plural(len(lines) - MAX_SIGNALS + 1, 'signal')} more")


def published(
    old: PolicyStatus,
    book: Book,
    policy: PolicyState,
    tables: Sequence[RoutingTable],
    *,
    before: Sequence[RoutingTable],
    at: str,
    causes: Causes,
    edits: str,
    sentences: tuple[str, ...],
) -> PolicyStatus:
    """Status after a publication: all parts anew, and a line of history where weights changed."""
    changes = change_lines(before, tables)
    revision = max((table.identity.revision for table in tables), default=0)
    return msgspec.structs.replace(
        old,
        as_of=at,
        summary=summary_of(book, policy, tables, at if changes else old.summary.changed or ""),
        weights=weight_lines(tables),
        why=sentences,
        history=with_history(old, history_line(at, revision, causes, changes, edits)) if changes else old.history,
    )
