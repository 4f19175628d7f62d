"""What the strategies share: the result of a component, and a rule's flows over eligible pairs.

On the routing-weight path; pure. Every strategy ends in a ``Solution``, so that tables, reasons and status know no
difference. Rules (all but Optimized) don't look at load; they are evaluated, not solved, and never shed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from headrace_operator.optimizer import EligiblePair, eligible_pairs, evaluate
from headrace_operator.optimizer.solution import Solution
from headrace_operator.snapshot.model import Snapshot, SourceKey

Flows = dict[tuple[SourceKey, str], float]
Shares = Callable[[Snapshot, Sequence[EligiblePair]], Sequence[float]]


class ComponentResult(NamedTuple):
    """The split of one component: policies solved together, by which strategy, and whether they only look on."""

    policies: tuple[str, ...]
    strategy: str
    shadow: bool
    solution: Solution


class NotAvailable(NamedTuple):
    """A strategy that this version does not have, and what to do."""

    strategy: str
    message: str


def by_source(pairs: Iterable[EligiblePair]) -> Iterable[tuple[SourceKey, list[EligiblePair]]]:
    """Pairs grouped by source; they come sorted by (source, engine)."""
    for source, group in groupby(pairs, key=lambda pair: pair.source):
        yield source, list(group)


def ruled(snapshot: Snapshot, policy: str, fixed: Mapping[str, float], shares: Shares) -> Solution:
    """The solution of a rule: each source's demand split by ``shares`` over its eligible engines.

    ``shares`` gives non-negative numbers in any unit, one a pair; equal ones stand when it gives only zeros.
    """
    demand = {source.key: source.requests_per_second for source in snapshot.demand}
    flows: Flows = {}
    for source, pairs in by_source(eligible_pairs(snapshot, (policy,))):
        parts = [max(0.0, part) for part in shares(snapshot, pairs)]
        whole = sum(parts)
        for pair, part in zip(pairs, parts, strict=True):
            flows[source, pair.engine] = demand[source] * (part / whole if whole > 0 else 1 / len(pairs))
    return evaluate(snapshot, (policy,), flows, fixed=fixed)
