"""The requests of a load: so many a second at each front-end, all of one length, with or without conversations. Pure.

Unlike the demo's workload nothing of it comes from a trace: what tests count must follow from what they asked for.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import NamedTuple

from headrace_lab.workload.requests import INTERACTIVE, Request

BLOCK_TOKENS = 512  # of a prompt; no two keyless requests share one, so that no engine's prefix cache helps
MAX_REQUESTS = 1_000_000


class Steady(NamedTuple):
    """Requests/s by front-end, how long (seconds) and how many a front-end at most, tokens in and out.

    sessions: conversations of each front-end, in turn; 0: every request is on its own and names none. even: at equal
    distances; else as independent clients come (Poisson), by ``seed``.
    """

    rates: Mapping[str, float]
    duration: float
    requests: int = MAX_REQUESTS
    input_tokens: int = 1024
    output_tokens: int = 128
    sessions: int = 0
    even: bool = False
    seed: int = 0
    priority: str = INTERACTIVE


def build(load: Steady) -> Iterator[Request]:
    """All requests in order of time; the same arguments give the same requests."""
    numbers = count(1)
    streams = [_stream(load, frontend, rate, numbers) for frontend, rate in sorted(load.rates.items())]
    return heapq.merge(*streams, key=lambda request: request.at)


def _stream(load: Steady, frontend: str, rate: float, numbers: Iterator[int]) -> Iterator[Request]:
    rng = random.Random(f"{load.seed}/{frontend}")  # noqa: S311 - arrival times
    at = 0.0
    for position in islice(count(), load.requests):
        at += 1 / rate if load.even else rng.expovariate(rate)
        if at >= load.duration:
            return
        session = position % load.sessions if load.sessions else next(numbers)
        yield Request(
            at=at,
            frontend=frontend,
            session=f"{frontend}-{session}" if load.sessions else "",
            blocks=_blocks(load, f"{frontend}/{session}"),
            input_tokens=load.input_tokens,
            output_tokens=load.output_tokens,
            priority=load.priority,
        )


def _blocks(load: Steady, whose: str) -> tuple[int, ...]:
    rng = random.Random(f"{load.seed}/{whose}")  # noqa: S311 - which prompts are alike
    return tuple(rng.getrandbits(48) for _ in range(-(-load.input_tokens // BLOCK_TOKENS)))
