"""What is found of a policy on a tick, as conditions will say it.

On the routing-weight path; pure. The rules of the API page, Status and Mass loss: who rules a contested model, whether
anything is left to route to, whether a table fits, whether demand fits, whether signals are fresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace_api.names import CAPACITY_SUFFICIENT, PROFILE_DRIFT, PUBLISHED, READY, SIGNALS_FRESH, SOLVED, STALLED
from headrace_api.units import seconds
from headrace_operator.decision.losses import Hold
from headrace_operator.decision.status.conditions import Finding
from headrace_operator.decision.tables.encode import TableTooLarge
from headrace_operator.decision.why.book import Book
from headrace_operator.decision.why.text import listed, percent, plain, plural, rate
from headrace_operator.snapshot.clock import epoch_seconds
from headrace_operator.snapshot.eligibility import BY_DECLARATION
from headrace_operator.snapshot.model import PolicyState, Snapshot
from headrace_operator.snapshot.signals import SignalStatus

FROZEN: Final = "Frozen"
BREAK_GLASS_IGNORED: Final = "BreakGlassIgnored"
RUNGS: Final = ("Held", "Widened", "Unknown")  # what is done without a signal, from little to all


class Facts(NamedTuple):
    """A policy on a tick.

    moved: whether its component was solved anew. lost: models without an eligible engine. fresh: what SignalsFresh says
    so far (Unknown: nothing).
    """

    policy: PolicyState
    book: Book
    moved: bool
    lost: tuple[str, ...]
    emptied: bool
    too_large: tuple[TableTooLarge, ...]
    holds: tuple[Hold, ...]
    relief: str
    tables: int
    taken: tuple[str, ...]
    fresh: str


def findings(facts: Facts, snapshot: Snapshot) -> list[Finding]:
    """All judgements of this tick; what was not judged anew is missing (see ``kept``)."""
    found = [_ready(facts)]
    stalled = _stalled(facts)
    if stalled is not None:
        found.append(stalled)
    if facts.policy.spec.mode == "Enforce" and (facts.tables or facts.too_large or facts.taken):
        found.append(_published(facts))
    if facts.moved:
        found += [_solved(facts), _capacity(facts)]
    return [*found, *filter(None, (_fresh(facts, snapshot), _drift(facts.policy, snapshot)))]


def kept(facts: Facts, snapshot: Snapshot) -> tuple[str, ...]:
    """Conditions that stay: nothing was solved, or what is to be judged was not read yet."""
    solved = () if facts.moved else (SOLVED, CAPACITY_SUFFICIENT)
    return solved if _fresh(facts, snapshot) is not None else (*solved, SIGNALS_FRESH)


def _stalled(facts: Facts) -> Finding | None:
    """What only an edit mends."""
    policy = facts.policy
    if policy.conflicts:
        return Finding(STALLED, "True", "Conflicted", _conflict(policy))
    if facts.book.result.strategy == "Feedback":
        return Finding(STALLED, "True", "StrategyNotAvailable", facts.book.solution.message)
    if facts.too_large:
        return Finding(STALLED, "True", "TableTooLarge", facts.too_large[0].message)
    if facts.taken:
        return Finding(STALLED, "True", "ConfigMapTaken", _taken(facts))
    if facts.emptied:
        return Finding(STALLED, "True", "NoEligibleEngines", _no_engines(facts))
    return None


def _ready(facts: Facts) -> Finding:
    policy, solution = facts.policy, facts.book.solution
    stalled = _stalled(facts)
    if stalled is not None:
        return Finding(READY, "False", stalled.reason, stalled.message)
    if facts.lost:
        return Finding(READY, "False", "NoEligibleEngines", _no_engines(facts))
    if policy.spec.mode == "Shadow":
        stays = "; the last tables stay as they are" if facts.tables else ""
        return Finding(READY, "True", "Shadow", f"solved and reported, nothing is published{stays}")
    if solution.status == "Failed" and not facts.tables:
        return Finding(READY, "False", "SolverFailed", f"{solution.message}; there is no earlier table")
    if policy.frozen:
        return Finding(READY, "True", FROZEN, f"{policy.message}; the last tables stay")
    if policy.message:
        return Finding(
            READY, "True", BREAK_GLASS_IGNORED, f"{policy.message}; {plural(facts.tables, 'table')} in force"
        )
    return Finding(READY, "True", "Published", f"{plural(facts.tables, 'table')} in force")


def _conflict(policy: PolicyState) -> str:
    rulers = sorted({ruler for _, _, ruler in policy.conflicts})
    pairs = [f"model {model} at {frontend}" for frontend, model, _ in policy.conflicts]
    return f"{listed(rulers)} is older and rules {listed(pairs)}; take them out of one of the policies"


def _taken(facts: Facts) -> str:
    return f"an older policy's table has the name {listed(facts.taken)}; set publish.configMap to another one"


def _no_engines(facts: Facts) -> str:
    reasons: dict[str, None] = {}
    for pair in facts.book.excluded.get(facts.policy.id, []):
        if pair.source.model in facts.lost:
            reasons.setdefault(pair.message)
    why = listed(list(reasons), 4) or "no engine is selected"
    stays = "; its last routes stay" if facts.tables else ""
    return f"no eligible engine for {listed(facts.lost)}: {why}{stays}"


def _published(facts: Facts) -> Finding:
    if facts.too_large:
        return Finding(PUBLISHED, "False", "TableTooLarge", facts.too_large[0].message)
    if facts.taken:
        return Finding(PUBLISHED, "False", "ConfigMapTaken", _taken(facts))
    return Finding(PUBLISHED, "True", "Written", plural(facts.tables, "table"))


def _solved(facts: Facts) -> Finding:
    solution = facts.book.solution
    if solution.status == "Failed":
        return Finding(SOLVED, "False", "SolverFailed", f"{solution.message}; the last weights stay")
    if solution.status == "Optimal":
        return Finding(SOLVED, "True", "Optimal", "the weights are the optimum of the programme")
    return Finding(SOLVED, "True", facts.book.result.strategy, f"weights by rule: {facts.book.result.strategy}")


def _capacity(facts: Facts) -> Finding:
    book = facts.book
    sources = [source for source in book.of_policy(facts.policy.id) if source in book.routes]
    missing = sum(book.shed(source) for source in sources)
    demand = sum(book.sources[source].demand for source in sources)
    if missing > 0:
        message = f"{plain(missing)} of {rate(demand)} ({percent(missing / demand)}) are refused"
        return Finding(
            CAPACITY_SUFFICIENT, "False", "Shedding", message + (f"; {facts.relief}" if facts.relief else "")
        )
    return Finding(CAPACITY_SUFFICIENT, "True", "Fits", "nothing is refused")


def _fresh(facts: Facts, snapshot: Snapshot) -> Finding | None:
    if facts.holds:
        return Finding(SIGNALS_FRESH, "False", "MassLoss", "; ".join(hold.message for hold in facts.holds))
    mine = concerned(facts.policy, facts.book, snapshot.states)
    awaited = [state for state in mine if not_read_yet(state, facts.policy, snapshot.at)]
    stale = [state for state in mine if state.state != "Fresh" and state not in awaited]
    if awaited and not stale:
        if facts.fresh != "Unknown":
            return None
        return Finding(SIGNALS_FRESH, "Unknown", "Starting", f"{plural(len(awaited), 'signal')} not read yet")
    if stale:
        names = listed([f"{state.name} {state.state}" for state in stale])
        farthest = max((state.state for state in stale), key=RUNGS.index)
        return Finding(SIGNALS_FRESH, "False", farthest, names, follows=True)
    if not mine:
        return Finding(SIGNALS_FRESH, "Unknown", "NotMeasured", "nothing is measured; declared values hold")
    return Finding(SIGNALS_FRESH, "True", "Fresh", "all signals are fresh")


def not_read_yet(state: SignalStatus, policy: PolicyState, at: float) -> bool:
    """Whether a signal may still come: never read, for less than the policy's ``staleness.hold``.

    This is a start, of the operator or of an engine, and no news.
    """
    unread = state.state == "Unknown" and not state.read
    since = epoch_seconds(state.since) if unread and state.since else None
    return since is not None and -1.0 < at - since < seconds(policy.spec.staleness.hold)


def _drift(policy: PolicyState, snapshot: Snapshot) -> Finding | None:
    """Profiles that are wrong for most engines of one of the policy's models; only an administrator can mend them."""
    bases = {base for base, _ in policy.served}
    parts = [
        f"{drift.model}: tokens take {1 / drift.factor:.2g} times what the profiles say (median engine)"
        for drift in snapshot.drifts
        if drift.model in bases and drift.factor > 0
    ]
    if not parts:
        return None
    return Finding(PROFILE_DRIFT, "True", "ProfileDrift", f"{listed(parts)}; no engine is trimmed, measure them anew")


def engines_of(policy: str, book: Book) -> frozenset[str]:
    """Engines that a policy may use, or might but for their state."""
    used = {route.engine for source in book.of_policy(policy) for route in book.routes.get(source, [])}
    kept_out = {pair.engine for pair in book.excluded.get(policy, []) if pair.reason not in BY_DECLARATION}
    return frozenset(used | kept_out)


def concerned(policy: PolicyState, book: Book, states: Sequence[SignalStatus]) -> list[SignalStatus]:
    """Signals that name the policy or one of the engines it may use, and the metric sources of those engines."""
    names = {policy.id, *engines_of(policy.id, book)}
    mine = [state for state in states if names & set(state.name.split())]
    sources = {
        f"metric source {source}" for state in mine for _, found, source in [state.name.rpartition(" from ")] if found
    }
    return [*(state for state in states if state.name in sources), *mine]
