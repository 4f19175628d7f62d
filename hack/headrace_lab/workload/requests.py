"""Puts arrivals and conversations together: the requests of a run, each with its instant, front-end and prompt.

A conversation belongs to one front-end for ever (by a hash of its id, in proportion to the front-ends' shares), so
that its turns share their prefix where they are served. When a front-end has used up its conversations they start
again as new ones: other ids in every block but the shared first, so that no cache profits from the repetition.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from headrace_lab.workload.arrivals import Rate, operational_times, rescaled
from headrace_lab.workload.frontends import FRONTENDS, FrontendShare
from headrace_lab.workload.traces import MOONCAKE_BLOCK_TOKENS, Arrival, Turn

BATCH_SHARE = 0.2  # of conversations; neither trace knows priorities
INTERACTIVE, BATCH = "interactive", "batch"
_LAP_IDS = 10_000_000  # above every id of the trace


class Surge(NamedTuple):
    """One front-end's rate times ``factor`` between two instants of the run (seconds)."""

    frontend: str
    start: float
    end: float
    factor: float


class WorkloadSpec(NamedTuple):
    """What to replay: requests/s over all front-ends outside the surges, seconds, and what lengths are divided by."""

    duration: float
    per_second: float
    length_divisor: int = 4
    surges: tuple[Surge, ...] = ()
    frontends: tuple[FrontendShare, ...] = FRONTENDS

    @property
    def block_tokens(self) -> int:
        """Tokens of a prompt block after the division."""
        return MOONCAKE_BLOCK_TOKENS // self.length_divisor


class Request(NamedTuple):
    """One request: seconds since the run began, where it arrives, its conversation, its prompt and answer.

    blocks: ids of the prompt's blocks; equal leading ids are equal leading text.
    """

    at: float
    frontend: str
    session: str
    blocks: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    priority: str


def build(spec: WorkloadSpec, turns: Sequence[Turn], arrivals: Sequence[Arrival]) -> tuple[Request, ...]:
    """All requests of a run in order of time; the same arguments give the same requests.

    Raises:
        ValueError: a figure of the spec is out of range, or a front-end got no conversation.
    """
    check(spec)
    by_frontend: dict[str, list[Turn]] = {frontend.name: [] for frontend in spec.frontends}
    for turn in turns:
        by_frontend[home(turn.session, spec.frontends)].append(turn)
    streams = []
    largest_first = sorted(spec.frontends, key=lambda frontend: -frontend.share)
    for position, frontend in enumerate(largest_first):
        if not by_frontend[frontend.name]:
            raise ValueError(f"front-end {frontend.name}: no conversation of the trace falls to it; use a longer trace")
        first = position * len(arrivals) // len(spec.frontends)
        streams.append(_stream(spec, frontend, by_frontend[frontend.name], operational_times(arrivals, first)))
    return tuple(heapq.merge(*streams, key=lambda request: request.at))


def check(spec: WorkloadSpec) -> None:
    """Raises ValueError for a spec that means nothing; the message names field, value and what would be right."""
    if not 0 < spec.duration <= 86_400:
        raise ValueError(f"duration: {spec.duration}; right would be seconds above 0, at most 86400")
    if not 0 < spec.per_second <= 10_000:
        raise ValueError(f"rate: {spec.per_second}; right would be requests/s above 0, at most 10000")
    if spec.length_divisor not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"length-divisor: {spec.length_divisor}; right would be 1, 2, 4, 8, 16 or 32")
    for surge in spec.surges:
        if not 0 <= surge.start <= surge.end <= 86_400 or not 0 < surge.factor <= 100:
            right = "0 <= start <= end <= 86400 and a factor above 0, at most 100"
            raise ValueError(f"surge of {surge.frontend}: {surge}; right would be {right}")


def home(session: int, frontends: Sequence[FrontendShare]) -> str:
    """The front-end that a conversation belongs to."""
    point = _unit("home", session) * sum(frontend.share for frontend in frontends)
    for frontend in frontends:
        point -= frontend.share
        if point < 0:
            return frontend.name
    return frontends[-1].name


def rates(spec: WorkloadSpec, frontend: FrontendShare) -> list[Rate]:
    """A front-end's rate over the run: its share of the total, times every surge that holds."""
    base = spec.per_second * frontend.share / sum(other.share for other in spec.frontends)
    mine = [surge for surge in spec.surges if surge.frontend == frontend.name]
    edges = sorted({0.0, *(surge.start for surge in mine), *(surge.end for surge in mine)})
    result = []
    for since in edges:
        factor = 1.0
        for surge in mine:
            if surge.start <= since < surge.end:
                factor *= surge.factor
        result.append(Rate(since, base * factor))
    return result


def _stream(
    spec: WorkloadSpec, frontend: FrontendShare, turns: Sequence[Turn], events: Iterator[tuple[float, int]]
) -> Iterator[Request]:
    timed = rescaled(events, rates(spec, frontend), spec.duration)
    for position, (at, output_tokens) in enumerate(timed):
        lap, index = divmod(position, len(turns))
        turn = turns[index]
        input_tokens = max(1, turn.input_length // spec.length_divisor)
        yield Request(
            at=at,
            frontend=frontend.name,
            session=f"{lap}-{turn.session}",
            blocks=tuple(block and block + lap * _LAP_IDS for block in turn.hash_ids),
            input_tokens=min(input_tokens, len(turn.hash_ids) * spec.block_tokens),
            output_tokens=max(1, output_tokens // spec.length_divisor),
            priority=BATCH if _unit("batch", turn.session) < BATCH_SHARE else INTERACTIVE,
        )


def _unit(salt: str, session: int) -> float:
    """A fixed point in [0, 1) for a session."""
    return int.from_bytes(blake2b(f"{salt}:{session}".encode(), digest_size=8).digest()) / 2**64
