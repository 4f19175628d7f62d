"""When an endpoint is taken out of rotation by this router, and when it comes back.

On the request path, at the end of an attempt. Consecutive failures eject an endpoint for a time that doubles with
each ejection; then one trial request at a time decides. 429 and 503 mean full, not failed. A client's errors and
cancellations say nothing. The limit is checked for the state after the ejection, and the last endpoint of a model is
never ejected: a doubtful engine beats none.
"""

from __future__ import annotations

from typing import Final

from headrace_api.table import TableEjection
from headrace_router.core.facts import Outcome
from headrace_router.core.state import NEVER, EndpointState, EngineState

# One key's prompt may simply be too long for the time-out; three keys are the engine's fault.
DISTINCT_LATE_KEYS: Final = 3
# An engine that answers 429 or 503 without saying for how long: about one step of its own queue.
DEFAULT_FULL_S: Final = 1.0
_MOST_DOUBLINGS: Final = 40
_MOST_LATE_KEYS: Final = 64


def record(
    endpoint: EndpointState,
    state: EngineState,
    outcome: Outcome,
    *,
    epoch: int,
    key: int,
    limits: TableEjection,
    now: float,
    retry_after: float | None = None,
    default_full: float = DEFAULT_FULL_S,
) -> bool:
    """Take in how an attempt went. Returns whether it ejected the endpoint.

    Args:
        endpoint: where it went.
        state: its engine.
        outcome: how it went.
        epoch: the endpoint's when the attempt began; what began before an ejection says nothing after it.
        key: what tells one client's prompt from another's.
        limits: the policy's.
        now: monotonic seconds.
        retry_after: what the engine asked for, with FULL; None if nothing readable.
        default_full: seconds that FULL means without it.
    """
    if outcome is Outcome.ANSWERED:
        endpoint.failures = 0
        endpoint.late = None
        _restore(endpoint, state, epoch, now)
        return False
    if outcome is Outcome.FULL:
        wait = default_full if retry_after is None else min(retry_after, limits.max)
        endpoint.full_until = max(endpoint.full_until, now + wait)
        state.troubled = True
        _restore(endpoint, state, epoch, now)
        return False
    if outcome in (Outcome.REUSED_CLOSED, Outcome.CANCELLED) or epoch != endpoint.epoch:
        return False
    if outcome is Outcome.TIMED_OUT:
        late = endpoint.late = endpoint.late if endpoint.late is not None else set()
        if len(late) < _MOST_LATE_KEYS:
            late.add(key)
    else:
        endpoint.failures += 1
    return _judge(endpoint, state, limits, now)


def _restore(endpoint: EndpointState, state: EngineState, epoch: int, now: float) -> None:
    if endpoint.ejected and epoch == endpoint.epoch:
        endpoint.ejected = False
        endpoint.trial = False
        endpoint.restored = now
        state.count_out(endpoint, -1)


def _judge(endpoint: EndpointState, state: EngineState, limits: TableEjection, now: float) -> bool:
    if endpoint.ejected:
        if now < endpoint.until:
            return False  # asked for want of any other, before its trial: nothing new, at any rate of requests
        _eject(endpoint, state, limits, now)
        return True
    late = len(endpoint.late) if endpoint.late is not None else 0
    counted = endpoint.failures + (late if late >= DISTINCT_LATE_KEYS else 0)
    if counted < limits.consecutive or not _may_eject(state, limits):
        return False
    if endpoint.restored != NEVER and now - endpoint.restored > limits.max:
        endpoint.level = 0
    _eject(endpoint, state, limits, now)
    return True


def _may_eject(state: EngineState, limits: TableEjection) -> bool:
    """Whether one more ejection leaves enough in each pool that the engine belongs to."""
    for pool in state.pools:
        out = pool.out + 1
        if out * 100 > limits.max_percent * pool.total or pool.total - out < max(1, limits.min_healthy):
            return False
    return True


def _eject(endpoint: EndpointState, state: EngineState, limits: TableEjection, now: float) -> None:
    endpoint.level = min(endpoint.level + 1, _MOST_DOUBLINGS)
    endpoint.epoch += 1
    endpoint.failures = 0
    endpoint.late = None
    if not endpoint.ejected:
        state.count_out(endpoint, 1)
    endpoint.ejected = True
    endpoint.trial = False
    endpoint.until = now + min(limits.max, limits.base * 2.0 ** (endpoint.level - 1))
    state.troubled = True
