"""Penalties for slow and failing engines: who is an outlier, for how long, how much it counts for, how it recovers.

On the engine-signal path (the protection page, Penalties). An outlier is one against its own profile at its own load
*and* against its peers, with enough observations, for long enough; thresholds to enter and to leave differ
(hysteresis); recovery goes in steps; a penalty that nothing confirms expires. Advances on samples, never on ticks.
Clients' errors are not evidence: the caller leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal, NamedTuple

Phase = Literal["Normal", "Suspect", "Penalized", "Recovering"]

# Queues make a mean TTFT swing by itself: it needs a wider margin than the time between tokens.
TTFT_MARGIN: Final = 2.0
# Above this utilisation a queue is what the load does, not what the engine does.
TTFT_BELOW: Final = 0.9
# Gaps between tokens that say as much as one time to first token: few requests make many of them.
TOKENS_A_REQUEST: Final = 10.0
FLOOR: Final = 0.05
# Factors are multiples of this; a new one replaces the old only when it is further away than that.
STEP: Final = 0.05
RECOVERY: Final = 0.25
# A slow engine under its old load looks slower than it is (its batch has grown): the first penalty goes no deeper than
# this, and each further one, judged under the new load, at most halves it.
FIRST: Final = 0.3
DEEPER: Final = 0.5


@dataclass(frozen=True, slots=True)
class PenaltyRules:
    """Thresholds. enter, exit: times the expected latency. Seconds: after, recover_after, recover_step, expiry.

    max_share: of a model's capacity that may be penalised at once. error_share: of requests finished.
    """

    enter: float = 2.0
    exit: float = 1.3
    min_requests: float = 20.0
    after: float = 60.0
    recover_after: float = 60.0
    recover_step: float = 30.0
    expiry: float = 600.0
    max_share: float = 0.5
    error_share: float = 0.2


@dataclass(frozen=True, slots=True)
class Measured:
    """One engine over the window that ends at ``at``: measured over expected latency (None: unknown), and errors.

    requests, tokens: observations of first tokens and of gaps between tokens. utilization: of its capacity, as its own
    counters show.
    """

    at: float
    ttft_ratio: float | None = None
    tbot_ratio: float | None = None
    requests: float = 0.0
    tokens: float = 0.0
    utilization: float = 0.0
    error_share: float | None = None
    finished: float = 0.0


@dataclass(frozen=True, slots=True)
class Penalty:
    """State of one engine.

    since: when the phase began. changed: when the factor did. confirmed: last evidence. calm: since when it is normal.
    """

    phase: Phase = "Normal"
    factor: float = 1.0
    reason: str = ""
    since: float = 0.0
    confirmed: float = 0.0
    calm: float | None = None
    at: float = -math.inf
    exempt: bool = False
    changed: float = 0.0


class Verdict(NamedTuple):
    """What one sample says: bad with the factor it would deserve and why; good; or nothing (too little seen)."""

    kind: Literal["Bad", "Good", "Unclear"]
    factor: float = 1.0
    reason: str = ""


def judge(measured: Measured, peers: Iterable[Measured], rules: PenaltyRules, *, penalized: bool) -> Verdict:
    """What this sample says of an engine, beside its peers' (those of the same hardware; may be none)."""
    others = list(peers)
    failing = _failing(measured, others, rules)
    if failing is not None:
        return failing
    tbot = _slowness("TBOT", _tbot(measured, rules), [_tbot(peer, rules) for peer in others], 1.0, rules, penalized)
    ttft = _slowness(
        "TTFT", _ttft(measured, rules), [_ttft(peer, rules) for peer in others], TTFT_MARGIN, rules, penalized
    )
    slow = [verdict for verdict in (tbot, ttft) if verdict is not None]
    if tbot is not None and tbot.kind == "Bad":
        return tbot
    if ttft is not None and ttft.kind == "Bad":
        # A queue multiplies what is slow: how late first tokens are does not say how much the engine still does.
        return ttft._replace(factor=max(FIRST, ttft.factor))
    good = bool(slow) and all(verdict.kind == "Good" for verdict in slow)
    return Verdict("Good" if good else "Unclear")


def _tbot(measured: Measured, rules: PenaltyRules) -> float | None:
    enough = measured.tokens >= TOKENS_A_REQUEST * rules.min_requests
    return measured.tbot_ratio if enough else None


def _ttft(measured: Measured, rules: PenaltyRules) -> float | None:
    enough = measured.requests >= rules.min_requests
    return measured.ttft_ratio if enough and measured.utilization < TTFT_BELOW else None


def _slowness(
    name: str,
    ratio: float | None,
    peers: list[float | None],
    margin: float,
    rules: PenaltyRules,
    penalized: bool,
) -> Verdict | None:
    if ratio is None:
        return None
    known = [value for value in peers if value is not None]
    # Peers that are faster than their profile excuse nobody; peers that are slower do.
    relative = ratio / max(1.0, median(known)) if known else ratio
    limit = (rules.exit if penalized else rules.enter) * margin
    if relative >= limit:
        return Verdict("Bad", quantized(1.0 / relative), f"{name} {ratio:.1f} times its profile")
    return Verdict("Good") if relative < rules.exit * margin else Verdict("Unclear")


def _failing(measured: Measured, peers: list[Measured], rules: PenaltyRules) -> Verdict | None:
    share = measured.error_share
    if share is None or measured.finished < rules.min_requests or share < rules.error_share:
        return None
    known = [peer.error_share for peer in peers if peer.error_share is not None]
    if known and share < 2 * median(known):
        return None
    return Verdict("Bad", quantized((1.0 - share) ** 2), f"{share:.0%} of its requests failed")


def quantized(factor: float) -> float:
    """The factor as a multiple of STEP within [FLOOR, 1]."""
    return min(1.0, max(FLOOR, round(round(factor / STEP) * STEP, 10)))


def advance(state: Penalty, at: float, verdict: Verdict, rules: PenaltyRules, *, allowed: bool) -> Penalty:
    """The state after one more sample at ``at``.

    allowed: whether one more engine may be penalised (never all of them; see ``may_penalize``).
    """
    if not at > state.at:
        return state
    state = replace(state, at=at)
    match state.phase:
        case "Normal":
            return _enter(replace(state, since=at), at, verdict, rules, allowed) if verdict.kind == "Bad" else state
        case "Suspect":
            if verdict.kind == "Good" or at - state.confirmed > rules.after:
                return Penalty(since=at, at=at)
            return _enter(state, at, verdict, rules, allowed) if verdict.kind == "Bad" else state
        case "Penalized":
            return _hold(state, at, verdict, rules)
        case _:
            return _recover(state, at, verdict, rules, allowed)


def _enter(state: Penalty, at: float, verdict: Verdict, rules: PenaltyRules, allowed: bool) -> Penalty:
    if at - state.since < rules.after:
        return replace(state, phase="Suspect", reason=verdict.reason, confirmed=at)
    if not allowed:
        reason = f"{verdict.reason}, not penalised: at most {rules.max_share:.0%} of a model's capacity may be"
        return replace(state, phase="Suspect", reason=reason, confirmed=at, exempt=True)
    seconds = at - state.since
    return _punished(max(FIRST, verdict.factor), f"{verdict.reason} for {seconds:.0f} s", at)


def _hold(state: Penalty, at: float, verdict: Verdict, rules: PenaltyRules) -> Penalty:
    if verdict.kind == "Bad":
        state = replace(state, confirmed=at, calm=None)
        moved = abs(verdict.factor - state.factor) > STEP * 1.01 or verdict.factor <= FLOOR < state.factor
        if not moved or at - state.changed < rules.after:
            return state
        deepest = math.ceil(state.factor * DEEPER / STEP - 1e-9) * STEP
        factor = quantized(min(max(verdict.factor, deepest), state.factor + RECOVERY))
        return replace(state, factor=factor, reason=verdict.reason, changed=at)
    calm = (at if state.calm is None else state.calm) if verdict.kind == "Good" else None
    recovered = calm is not None and at - calm >= rules.recover_after
    if recovered or at - state.confirmed >= rules.expiry:
        why = "normal again" if recovered else f"nothing confirmed it for {rules.expiry:.0f} s"
        return Penalty("Recovering", _stepped_up(state.factor), f"recovering: {why}", at, at, None, at)
    return replace(state, calm=calm)


def _recover(state: Penalty, at: float, verdict: Verdict, rules: PenaltyRules, allowed: bool) -> Penalty:
    if verdict.kind == "Bad" and allowed:
        return _punished(min(max(FIRST, verdict.factor), state.factor), f"{verdict.reason} again", at)
    if at - state.since < rules.recover_step:
        return state
    factor = _stepped_up(state.factor)
    if factor >= 1.0:
        return Penalty(since=at, at=at)
    return replace(state, factor=factor, since=at)


def _punished(factor: float, reason: str, at: float) -> Penalty:
    return Penalty("Penalized", factor, reason, since=at, confirmed=at, at=at, changed=at)


def _stepped_up(factor: float) -> float:
    return quantized(factor + RECOVERY)


def may_penalize(
    engine: str,
    penalized: Iterable[str],
    capacity: Mapping[str, float],
    models: Mapping[str, frozenset[str]],
    max_share: float,
) -> bool:
    """Whether ``engine`` may join the penalised: in each of its models they hold at most ``max_share`` of capacity.

    capacity: any one unit that compares engines of a model. models: what each engine serves.
    """
    out = {engine, *penalized}
    for model in models.get(engine, frozenset()):
        serving = [name for name, served in models.items() if model in served]
        total = sum(capacity.get(name, 0.0) for name in serving)
        if sum(capacity.get(name, 0.0) for name in serving if name in out) > max_share * total * (1 + 1e-9):
            return False
    return True
