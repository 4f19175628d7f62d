"""The explanation itself: a policy's candidates with their costs, and discrete questions solved again. No printing."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace_api.commands import InputError
from headrace_operator.cli.inputs import read_inputs, read_previous
from headrace_operator.cli.planning import make_plan
from headrace_operator.decision.decide import decide
from headrace_operator.decision.why.book import Book, label, open_book, short
from headrace_operator.decision.why.reasons import route_reason
from headrace_operator.decision.why.report import ReportStruct, exact
from headrace_operator.decision.why.sentences import why
from headrace_operator.decision.why.text import latency, listed, plain, plural, rate
from headrace_operator.decision.why.what_if import Effect, effect, settled, with_demand, with_replicas
from headrace_operator.optimizer.solution import Solution
from headrace_operator.publisher.records import read_record, recorded_revisions, written_policies
from headrace_operator.publisher.state import read_statuses
from headrace_operator.snapshot.clock import rfc3339
from headrace_operator.snapshot.eligibility import bare_name
from headrace_operator.snapshot.model import PolicyState, Snapshot, SourceKey
from headrace_operator.strategies.base import ComponentResult
from headrace_operator.strategies.optimized import optimized
from headrace_operator.strategies.run import fixed_for, rerun

NO_LOAD: Mapping[str, float] = {}


class Explained(NamedTuple):
    """A policy's component, solved, with what is known of its past."""

    policy: PolicyState
    book: Book
    fixed: Mapping[str, float]
    revision: int | None
    history: tuple[str, ...]
    faults: tuple[str, ...]


class Candidate(ReportStruct, frozen=True, kw_only=True):
    """One engine for one front-end and model (and prompt class). Costs in seconds of one more request.

    unloaded: round trip plus latency of the idle engine. queue: what the engine's load adds (work x price). cost: both.
    """

    engine: str
    weight: float
    previous_weight: float
    round_trip: float
    unloaded: float
    queue: float
    cost: float
    reason: str


class Excluded(ReportStruct, frozen=True, kw_only=True):
    """An engine that may not be used, and the rule."""

    engine: str
    reason: str
    message: str


class Source(ReportStruct, frozen=True, kw_only=True):
    """One front-end and model (and prompt class). marginal: null where one more request would be refused."""

    frontend: str
    model: str
    prompt_class: int
    demand: float
    origin: str
    shed: float
    marginal: float | None
    candidates: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]


class WhatIf(ReportStruct, frozen=True, kw_only=True):
    """A discrete question and its answer, solved again with time to settle."""

    question: str
    answer: str


class Explanation(ReportStruct, frozen=True, kw_only=True):
    """Everything ``explain`` says of a policy."""

    policy: str
    strategy: str
    at: str
    revision: int | None
    sources: tuple[Source, ...]
    what_if: tuple[WhatIf, ...]
    why: tuple[str, ...]
    history: tuple[str, ...]


def from_manifests(arguments: argparse.Namespace) -> Explained:
    """The policy in a plan of manifests."""
    inputs = read_inputs(arguments.files, arguments.namespace, arguments.signals, arguments.changes)
    previous, wrong = read_previous(arguments.previous) if arguments.previous is not None else ((), ())
    plan = make_plan(inputs, previous)
    faults = (*inputs.faults, *wrong)
    return _found(plan.snapshot, plan.results, arguments.policy, arguments.namespace, faults)


def from_state(state: Path, revision: int | None, policy: str, namespace: str) -> Explained:
    """The policy in what an operator published, decided again from its record.

    Raises:
        InputError: no record of that revision; the message names those that are there.
    """
    known = recorded_revisions(state)
    wanted = known[-1] if revision is None and known else revision
    if wanted in known:
        wanted = _of_policy(state, known[: known.index(wanted) + 1], policy, namespace)
    record = read_record(state, wanted) if wanted is not None else None
    if record is None or wanted is None:
        there = f"{known[0]} to {known[-1]}" if known else "none"
        asked = f"revision {revision}" if revision is not None else "any publication"
        raise InputError([f"--state {state}: no record of {asked}; there are {there}"])
    again = decide(
        record.snapshot, record.memory, record.before, uid=record.uid, term=record.term, revision=record.revision
    )
    snapshot = again.memory.last or record.snapshot
    explained = _found(snapshot, again.results, policy, namespace, ())
    history = read_statuses(state).get(explained.policy.id)
    return explained._replace(revision=wanted, history=history.history if history is not None else ())


def _of_policy(state: Path, revisions: Sequence[int], name: str, namespace: str) -> int:
    """The last of these publications that wrote a table of the policy: what its routers follow after all of them."""
    for revision in reversed(revisions):
        written = written_policies(state, revision)
        if name in written or f"{namespace}/{name}" in written or name in {bare_name(entry) for entry in written}:
            return revision
    return revisions[-1]


def _found(
    snapshot: Snapshot,
    results: tuple[ComponentResult, ...],
    name: str,
    namespace: str,
    faults: tuple[str, ...],
) -> Explained:
    policies = {policy.id: policy for policy in snapshot.policies}
    named = [entry for entry in policies.values() if name in (entry.id, bare_name(entry.id))]
    exact_one = [entry for entry in named if entry.id in (name, f"{namespace}/{name}")] or named
    if len(exact_one) != 1:
        there = listed(sorted(policies), 8) or "none"
        word = "is not unique" if exact_one else "is not there"
        raise InputError([*faults, f"policy {name!r} {word}; there are: {there}"])
    policy = exact_one[0]
    result = next(entry for entry in results if policy.id in entry.policies)
    fixed = fixed_for(snapshot, results) if result.strategy == "Optimized" else NO_LOAD
    return Explained(policy, open_book(snapshot, result), fixed, None, (), faults)


def explanation(explained: Explained, frontend: str | None, engine: str | None) -> Explanation:
    """What is said of the policy, of one front-end or engine where named.

    Raises:
        InputError: the front-end or engine is not among the policy's.
    """
    book, policy = explained.book, explained.policy
    sources = [key for key in book.of_policy(policy.id) if frontend is None or key.frontend == frontend]
    names = sorted({key.frontend for key in book.of_policy(policy.id)})
    if frontend is not None and not sources:
        raise InputError([f"--frontend {frontend!r} is not there; there are: {listed(names, 8) or 'none'}"])
    wanted = _engine_id(book, policy, engine) if engine is not None else None
    return Explanation(
        policy=policy.id,
        strategy=book.result.strategy,
        at=rfc3339(book.snapshot.at),
        revision=explained.revision,
        sources=tuple(_source(book, key, wanted) for key in sources),
        what_if=tuple(_questions(explained, sources if frontend is not None else [], wanted)),
        why=why(book, policy) if frontend is None and engine is None else (),
        history=explained.history,
    )


def _engine_id(book: Book, policy: PolicyState, name: str) -> str:
    known = {route.engine for key in book.of_policy(policy.id) for route in book.routes.get(key, [])}
    known |= {pair.engine for pair in book.solution.ineligible if pair.source.policy == policy.id}
    found = [engine for engine in sorted(known) if name in (engine, bare_name(engine))]
    if not found:
        there = listed([bare_name(engine) for engine in sorted(known)], 8) or "none"
        raise InputError([f"--engine {name!r} is not there; there are: {there}"])
    return found[0]


def _source(book: Book, key: SourceKey, engine: str | None) -> Source:
    result = book.sources[key]
    entry = next(entry for entry in book.snapshot.demand if entry.key == key)
    routes = [route for route in book.routes.get(key, []) if engine in (None, route.engine) or route.flow > 0]
    candidates = [
        Candidate(
            engine=bare_name(route.engine),
            weight=exact(route.flow / result.demand),
            previous_weight=exact(route.previous),
            round_trip=exact(route.round_trip),
            unloaded=exact(route.unloaded),
            queue=exact(book.cost(route) - route.unloaded),
            cost=exact(book.cost(route)),
            reason=route_reason(book, route),
        )
        for route in routes
    ]
    return Source(
        frontend=key.frontend,
        model=key.model,
        prompt_class=key.prompt_class,
        demand=exact(result.demand),
        origin=entry.origin,
        shed=exact(book.shed(key)),
        marginal=None if result.marginal is None else exact(result.marginal),
        candidates=tuple(sorted(candidates, key=lambda one: (-one.weight, one.cost, one.engine))),
        excluded=tuple(
            Excluded(engine=bare_name(pair.engine), reason=pair.reason, message=pair.message)
            for pair in book.solution.ineligible
            if pair.source == key and engine in (None, pair.engine)
        ),
    )


def _questions(explained: Explained, sources: Iterable[SourceKey], engine: str | None) -> list[WhatIf]:
    """One more request/s at each source, one more replica of the engine, and the engine gone; solved again."""
    book = explained.book
    base = settled(book.snapshot)
    asked: list[tuple[str, Snapshot, SourceKey | None]] = [
        (f"one more request/s at {label(key, book)}", with_demand(base, key, 1.0), key) for key in sources
    ]
    if engine is not None:
        ready = book.states[engine].ready if engine in book.states else 0.0
        asked.append((f"one more replica at {short(engine)}", with_replicas(base, engine, 1.0), None))
        if ready > 0:
            asked.append((f"{short(engine)} gone", with_replicas(base, engine, -ready), None))
    answers: list[WhatIf] = []
    for question, changed, source in asked:
        found = effect(book, changed, _again, explained.fixed)
        answer = "no answer" if found is None else _answer(book, found, source)
        answers.append(WhatIf(question=question, answer=answer))
    return answers


def _again(snapshot: Snapshot, policies: tuple[str, ...], fixed: Mapping[str, float]) -> Solution:
    return rerun(snapshot, policies, fixed, optimized)


def _answer(book: Book, found: Effect, source: SourceKey | None) -> str:
    before, after = found.before, found.after
    parts: list[str] = []
    if source is not None and after.refused - before.refused <= 0 and book.priced:
        parts.append(f"costs {latency(max(0.0, found.cost))}")
    if abs(after.refused - before.refused) > 1e-6:
        now, was = plain(after.refused), plain(before.refused)
        parts.append(f"{now} requests/s refused instead of {was}" if after.refused else f"nothing refused, not {was}")
    if source is None or not parts:
        parts.append(_latency_change(before.latency, after.latency))
    moved = [_moved(book, entry) for entry in found.moved[:3]]
    rest = len(found.moved) - len(moved)
    if moved:
        parts.append("; ".join(moved) + (f" and {plural(rest, 'smaller change')}" if rest else ""))
    return "; ".join(parts)


def _latency_change(before: float, after: float) -> str:
    if latency(before) == latency(after):
        return f"mean latency stays {latency(after)}"
    return f"mean latency {latency(after)} instead of {latency(before)}"


def _moved(book: Book, entry: tuple[SourceKey, str, float]) -> str:
    key, engine, amount = entry
    word = "more" if amount > 0 else "fewer"
    return f"{label(key, book)} to {short(engine)}: {rate(abs(amount))} {word}"
