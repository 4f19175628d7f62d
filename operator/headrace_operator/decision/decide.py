"""Snapshot + the tables that stand -> Decision: what to write, why, and what to tell. The end of the pure core.

On the routing-weight path; pure: no clock (the snapshot's instant is the time), no I/O, no log. A table is written only
when its content changed; a tick on which nothing moved returns nothing to write. The shell turns the Decision into
ConfigMaps or files, status and Events, and hands ``memory`` back on the next tick.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headrace_api.names import SIGNALS_FRESH
from headrace_api.status import PolicyStatus
from headrace_api.table import Identity, RoutingTable
from headrace_operator.decision.losses import Hold, emptied_by_edit, hold_losses
from headrace_operator.decision.memory import Memory
from headrace_operator.decision.publication import (
    Publication,
    key_of,
    orphans_of,
    publish,
    retained,
    standing_tables,
    taken_names,
)
from headrace_operator.decision.status.audit import published, signal_lines, with_history
from headrace_operator.decision.status.conditions import merged, status_of
from headrace_operator.decision.status.editors import edits
from headrace_operator.decision.status.events import BREAK_GLASS, Event, condition_events, engine_events
from headrace_operator.decision.status.findings import Facts, engines_of, findings, kept
from headrace_operator.decision.tables.carry import same_weights
from headrace_operator.decision.tables.encode import TableTooLarge
from headrace_operator.decision.tick import Assess, Outcome, Tick
from headrace_operator.decision.why.attribution import Causes, PutBack, shares_of
from headrace_operator.decision.why.book import Book, open_book
from headrace_operator.decision.why.sentences import relief_text, why
from headrace_operator.decision.why.what_if import Relief, best_replica
from headrace_operator.snapshot.clock import rfc3339
from headrace_operator.snapshot.cut import Cutter
from headrace_operator.snapshot.model import PolicyState, SavingSince, Snapshot
from headrace_operator.strategies.base import ComponentResult
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.run import Solve, rerun, run_strategies

NOTHING_KNOWN: Mapping[str, PolicyStatus] = {}


class Decision(NamedTuple):
    """What a tick came to.

    tables: to write, sorted by policy and front-end. orphans: (policy id, front-end) of tables that nobody asks for;
    delete them only when all manifests were read without faults, since a policy with a fault is missing too.
    statuses: those that changed. history: lines added, by policy. results: every component's, for plan and metrics.
    """

    tables: tuple[RoutingTable, ...]
    orphans: tuple[tuple[str, str], ...]
    too_large: tuple[TableTooLarge, ...]
    statuses: tuple[tuple[str, PolicyStatus], ...]
    events: tuple[Event, ...]
    history: tuple[tuple[str, str], ...]
    results: tuple[ComponentResult, ...]
    memory: Memory


class _Round(NamedTuple):
    """What all policies of one decision share."""

    snapshot: Snapshot
    memory: Memory
    standing: Mapping[tuple[str, str], RoutingTable]
    tick: Tick
    solve: Solve
    uid: str
    term: int
    revision: int
    statuses: Mapping[str, PolicyStatus]
    holds: tuple[Hold, ...]
    real: tuple[tuple[str, str], ...]
    taken: Mapping[tuple[str, str], str]
    barred: Collection[tuple[str, str]]
    reliefs: dict[tuple[str, ...], Relief | None]
    why: PutBack | None = None

    def of(self, result: ComponentResult, part: Snapshot, published: Cutter | None) -> _Round:
        """The same for one component: its part of the snapshot, and how causes of its changes are found."""
        ids = result.policies
        before = None if published is None else published.also(ids, (engine.id for engine in part.engines))
        now = part
        if before is not None and len(before.engines) > len(part.engines):
            present = {engine.id for engine in before.engines}
            now = msgspec.structs.replace(
                part, engines=tuple(engine for engine in self.snapshot.engines if engine.id in present)
            )
        outcome = self.tick.outcomes.get(ids)
        fixed = outcome.fixed if outcome is not None else {}
        return self._replace(
            snapshot=part, why=PutBack(before, now, lambda world: shares_of(rerun(world, ids, fixed, self.solve)))
        )

    @property
    def at(self) -> str:
        """The snapshot's instant, RFC 3339."""
        return rfc3339(self.snapshot.at)


class _Told(NamedTuple):
    """One policy's part of the decision. shifted: its weights changed."""

    publication: Publication
    status: PolicyStatus
    events: list[Event]
    history: list[tuple[str, str]]
    shifted: bool


def decide(
    snapshot: Snapshot,
    memory: Memory,
    tables: Sequence[RoutingTable],
    *,
    uid: str,
    term: int,
    revision: int = 0,
    assess: Assess | None = None,
    statuses: Mapping[str, PolicyStatus] = NOTHING_KNOWN,
    solve: Solve = optimized,
    barred: Collection[tuple[str, str]] = (),
) -> Decision:
    """Decide on one tick.

    tables: those that stand. uid: of every table, or "" for each policy's own. revision: of all that is published now;
    0: one more than the largest that stands. assess: the warm models' verdict (None: always solve). statuses: what
    stands, by policy id. solve: the seam for the programme. barred: (policy id, front-end) whose table can't be written
    whatever it is, so that none is decided.
    """
    held, holds = hold_losses(memory.last, snapshot)
    if memory.last is not None and memory.last.class_edges != held.class_edges:
        held = msgspec.structs.replace(held, savings=())  # they were those of other classes
    standing = standing_tables(tables, memory.shadow, held)
    cut = Cutter(held)
    tick = Tick(cut, memory, standing, solve, assess)
    results = run_strategies(held, solve=tick, cut=cut)
    held = msgspec.structs.replace(held, shedding=_shedding(tick.outcomes))
    current = _Round(
        held,
        memory,
        standing,
        tick,
        solve,
        uid,
        term,
        revision or 1 + max((table.identity.revision for table in standing.values()), default=0),
        statuses,
        holds,
        tuple(sorted({key_of(table) for table in tables})),
        taken_names(held),
        barred,
        {},
    )
    policies = {policy.id: policy for policy in held.policies}
    tables_of = _by_policy(standing)
    published = Cutter(memory.published) if memory.published is not None else None
    told: dict[str, _Told] = {}
    users: dict[str, list[str]] = {}
    for result in results:
        part = current.of(result, msgspec.structs.replace(cut(result.policies), shedding=held.shedding), published)
        book = open_book(part.snapshot, result)
        for name in result.policies:
            told[name] = _tell(part, book, policies[name], tables_of.get(name, []))
            for engine in sorted(engines_of(name, book)):
                users.setdefault(engine, []).append(name)
    return _joined(current, results, told, engine_events(memory.last, held, users))


def _tell(current: _Round, book: Book, policy: PolicyState, before: Sequence[RoutingTable]) -> _Told:
    """Tables, status and Events of one policy. current: of its component. before: its tables that stand."""
    moved = _moved(current, book)
    publication = publish(
        book,
        policy,
        current.standing,
        moved=moved,
        news=_news(current, book),
        identity=_identity(current, policy),
        issued=current.at,
        taken=current.taken,
        barred=current.barred,
    )
    old = current.statuses.get(policy.id, PolicyStatus())
    changed = bool(publication.written)
    shifted = changed and not _same(before, publication.after)
    relief = _relief(current, book) if moved and changed else None
    facts = Facts(
        policy=policy,
        book=book,
        moved=moved,
        lost=publication.lost,
        emptied=_emptied(current, policy, publication.lost),
        too_large=publication.too_large,
        holds=tuple(hold for hold in current.holds if hold.policy == policy.id),
        relief=relief_text(relief),
        tables=_count(current, policy, publication),
        taken=publication.taken,
        fresh=status_of(old.conditions, SIGNALS_FRESH),
    )
    status = old
    history: list[tuple[str, str]] = []
    events: list[Event] = []
    if changed:
        causes = _causes(current, policy) if shifted and before else ()
        status = published(
            old,
            book,
            policy,
            publication.after,
            before=before,
            at=current.at,
            causes=causes,
            edits=_edits(current, book, policy, before, causes) if causes or not before else "",
            sentences=why(book, policy, relief) if moved else old.why,
        )
        if status.history != old.history:
            history.append((policy.id, status.history[0]))
            if policy.spec.mode == "Enforce":
                line = status.history[0].removeprefix(f"{current.at} ")
                events.append(Event("RoutingPolicy", policy.id, "Normal", "WeightsChanged", line))
    conditions = merged(
        old.conditions,
        findings(facts, current.snapshot),
        kept=kept(facts, current.snapshot),
        generation=policy.generation,
        at=current.at,
    )
    news = condition_events(policy.id, old.conditions, conditions)
    for event in news:
        if event.reason in BREAK_GLASS:
            line = f"{current.at} rev {status.summary.revision}: {event.message}"
            status = msgspec.structs.replace(status, history=with_history(status, line))
            history.append((policy.id, status.history[0]))
    status = msgspec.structs.replace(
        status,
        observed_generation=policy.generation,
        conditions=conditions,
        signals=signal_lines(policy, book, current.snapshot),
    )
    return _Told(publication, status, [*events, *news], history, shifted)


def _by_policy(standing: Mapping[tuple[str, str], RoutingTable]) -> dict[str, list[RoutingTable]]:
    """Tables by policy, sorted by front-end."""
    found: dict[str, list[RoutingTable]] = {}
    for (policy, _), table in sorted(standing.items()):
        found.setdefault(policy, []).append(table)
    return found


def _count(current: _Round, policy: PolicyState, publication: Publication) -> int:
    """Tables in force: a Shadow policy's are those from before it became one."""
    if policy.spec.mode == "Shadow":
        return sum(key[0] == policy.id for key in current.real)
    return len(publication.after)


def _moved(current: _Round, book: Book) -> bool:
    """Whether the component's weights were found anew on this tick."""
    if book.result.policies in current.tick.outcomes:
        return current.tick.outcomes[book.result.policies].solved
    return True


def _news(current: _Round, book: Book) -> bool:
    """Whether what tables say beside their weights changed; a rule is no outcome of the tick, but is edited too."""
    outcome = current.tick.outcomes.get(book.result.policies)
    return current.tick.edited(book.result.policies) if outcome is None else outcome.news


def _identity(current: _Round, policy: PolicyState) -> Identity:
    return Identity(uid=current.uid or policy.uid or policy.id, term=current.term, revision=current.revision)


def _same(before: Sequence[RoutingTable], after: Sequence[RoutingTable]) -> bool:
    old = {table.frontend: table for table in before}
    return all(table.frontend in old and same_weights(old[table.frontend], table) for table in after)


def _emptied(current: _Round, policy: PolicyState, lost: tuple[str, ...]) -> bool:
    """Whether an edit took the last engine, now or on an earlier tick."""
    if not lost:
        return False
    if emptied_by_edit(current.memory.last, current.snapshot, policy, lost):
        return True
    old = current.statuses.get(policy.id, PolicyStatus())
    return any(condition.type == "Stalled" and condition.reason == "NoEligibleEngines" for condition in old.conditions)


def _relief(current: _Round, book: Book) -> Relief | None:
    """Where one more replica helps most, asked only while something is refused, and once a component."""
    if book.result.policies not in current.reliefs:
        current.reliefs[book.result.policies] = _best_replica(current, book)
    return current.reliefs[book.result.policies]


def _best_replica(current: _Round, book: Book) -> Relief | None:
    refused = any(book.shed(source) > 0 for source in book.sources if source in book.routes)
    if not refused or not book.priced:
        return None
    return best_replica(book, current.solve, current.tick.outcomes[book.result.policies].fixed)


def _causes(current: _Round, policy: PolicyState) -> Causes:
    """Causes in percent of what this publication changes."""
    return current.why.causes(policy.id) if current.why is not None else ()


def _edits(current: _Round, book: Book, policy: PolicyState, before: Sequence[RoutingTable], causes: Causes) -> str:
    """Who edited what, as far as that is a cause; also of engines that the edit took away."""
    engines = engines_of(policy.id, book) | {engine.id for table in before for engine in table.engines}
    return edits(current.memory.published, current.snapshot, policy, engines, causes)


def _shedding(outcomes: Mapping[tuple[str, ...], Outcome]) -> tuple[str, ...]:
    """Policies whose components shed from now on."""
    return tuple(
        sorted(
            name
            for policies, outcome in outcomes.items()
            if outcome.over is not None and outcome.over.opened
            for name in policies
        )
    )


def _savings(outcomes: Mapping[tuple[str, ...], Outcome]) -> tuple[SavingSince, ...]:
    return tuple(saving for _, outcome in sorted(outcomes.items()) for saving in outcome.savings)


def _joined(
    current: _Round, results: tuple[ComponentResult, ...], told: Mapping[str, _Told], engine_news: list[Event]
) -> Decision:
    """The decision of all policies, sorted, and the memory for the next tick."""
    snapshot = current.snapshot
    shadow = {policy.id for policy in snapshot.policies if policy.spec.mode == "Shadow"}
    written = [table for name, part in sorted(told.items()) if name not in shadow for table in part.publication.written]
    statuses = tuple(
        (name, part.status)
        for name, part in sorted(told.items())
        if part.status != current.statuses.get(name, PolicyStatus())
    )
    outcomes = current.tick.outcomes
    over = tuple(outcome.over for _, outcome in sorted(outcomes.items()) if outcome.over is not None)
    virtual = tuple(table for name, part in sorted(told.items()) if name in shadow for table in part.publication.after)
    shifted = any(part.shifted for part in told.values())
    memory = Memory(
        last=snapshot,
        published=snapshot if shifted or current.memory.published is None else current.memory.published,
        savings=_savings(outcomes),
        shedding=snapshot.shedding,
        over=over,
        shadow=virtual,
        retained=retained(current.memory.retained, snapshot),
    )
    return Decision(
        tables=tuple(written),
        orphans=orphans_of(current.real, snapshot, memory.retained),
        too_large=tuple(fault for _, part in sorted(told.items()) for fault in part.publication.too_large),
        statuses=statuses,
        events=tuple([event for _, part in sorted(told.items()) for event in part.events] + engine_news),
        history=tuple(line for _, part in sorted(told.items()) for line in part.history),
        results=results,
        memory=memory,
    )
