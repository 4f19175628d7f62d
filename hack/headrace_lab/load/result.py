"""What became of a load, as JSON for tests and people: counts and shares by front-end, engine and revision. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from headrace_lab.replay.outcome import FAILURES, Outcome
from headrace_lab.replay.summary import Counts, Figures, count, end_to_end_of, ttft_of

SHOWN_FAILURES = 20


class FrontendResult(msgspec.Struct, frozen=True, rename="camel"):
    """One front-end's part. engines: answers by the engine that gave them; revisions: the same by table revision."""

    counts: Counts
    engines: dict[str, int]
    revisions: dict[str, dict[str, int]]
    ttft: Figures
    end_to_end: Figures


class LoadResult(msgspec.Struct, frozen=True, rename="camel"):
    """The whole load. late: seconds that the most delayed request was sent behind its time, the client's own fault."""

    seconds: float
    counts: Counts
    frontends: dict[str, FrontendResult]
    failures: list[str]
    late: float


def result_of(outcomes: Sequence[Outcome], frontends: Sequence[str], seconds: float) -> LoadResult:
    """The figures of a load that took ``seconds``."""
    mine: dict[str, list[Outcome]] = {name: [] for name in frontends}
    for outcome in outcomes:
        mine[outcome.frontend].append(outcome)
    failed = [outcome for outcome in outcomes if outcome.result in FAILURES]
    return LoadResult(
        seconds=round(seconds, 2),
        counts=count(outcomes),
        frontends={name: _frontend(ended) for name, ended in mine.items()},
        failures=[_line(outcome) for outcome in failed[:SHOWN_FAILURES]],
        late=round(max((outcome.late for outcome in outcomes), default=0.0), 3),
    )


def _frontend(outcomes: Sequence[Outcome]) -> FrontendResult:
    engines: Counter[str] = Counter()
    revisions: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        if outcome.engine:
            engines[outcome.engine] += 1
            revisions[str(outcome.revision)][outcome.engine] += 1
    return FrontendResult(
        counts=count(outcomes),
        engines=dict(engines.most_common()),
        revisions={revision: dict(by_engine.most_common()) for revision, by_engine in revisions.items()},
        ttft=ttft_of(outcomes),
        end_to_end=end_to_end_of(outcomes),
    )


def _line(outcome: Outcome) -> str:
    where = f"{outcome.frontend} -> {outcome.engine or 'no engine'}"
    return f"{outcome.at:.1f} s, {where}: {outcome.result}, {outcome.status} {outcome.code} {outcome.detail}".rstrip()
