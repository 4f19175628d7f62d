"""How long after a fault the published weights were right again. Pure.

What is right is read from the run itself: where the weights stood when the fault ended. A fault counts as corrected
when they had gone three quarters of the way there, measured on the target alone: an engine's share of all traffic,
or, for a surge, the weights of the front-end that surges. So a late or absent reaction can't pass for a quick one,
and other front-ends' small changes don't count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace_lab.demo.observe import Publication
from headrace_lab.demo.script import Fault

LEFT_OVER = 0.25  # of the way
LEAST_MOVE = 0.01  # of all traffic (engine) or of the front-end's (surge); less is no reaction
Weights = Mapping[str, Mapping[str, float]]  # front-end -> engine -> fraction


def weights_at(publications: Sequence[Publication], at: float) -> dict[str, Mapping[str, float]]:
    """What stood at an instant, by front-end."""
    standing: dict[str, Mapping[str, float]] = {}
    for publication in publications:
        if publication.at <= at:
            standing[publication.frontend] = publication.weights
    return standing


def correction_time(publications: Sequence[Publication], fault: Fault, shares: Mapping[str, float]) -> float | None:
    """Seconds from the fault to the publication that corrected it; None when nothing moved, or too little.

    ``publications`` in order of time; ``shares``: each front-end's part of all traffic, summing to 1.
    """
    before, after = weights_at(publications, fault.at), weights_at(publications, fault.until)
    whole = _distance(before, after, fault, shares)
    if whole < LEAST_MOVE:
        return None
    for publication in publications:
        if not fault.at < publication.at <= fault.until:
            continue
        now = weights_at(publications, publication.at)
        if _distance(now, after, fault, shares) <= LEFT_OVER * whole:
            return publication.at - fault.at
    return None


def engine_share(standing: Weights, engine: str, shares: Mapping[str, float]) -> float:
    """The engine's part of all traffic."""
    return sum(share * standing.get(frontend, {}).get(engine, 0.0) for frontend, share in shares.items())


def _distance(left: Weights, right: Weights, fault: Fault, shares: Mapping[str, float]) -> float:
    if fault.kind != "surge":
        return abs(engine_share(left, fault.target, shares) - engine_share(right, fault.target, shares))
    mine, other = left.get(fault.target, {}), right.get(fault.target, {})
    return sum(abs(mine.get(name, 0.0) - other.get(name, 0.0)) for name in {*mine, *other}) / 2
