"""`python -m compile.rehearsal`: the request path at its usual work, for a compiler that looks on.

Time and chance are the same each time, so that what the compiler sees is, too.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from compile.rehearsal.stage import Client, Stage, Unexpected, staged
from compile.rehearsal.usual import CLIENTS, Exchange, exchanges

TABLE = Path(__file__).resolve().with_name("table.json")
ROUNDS = 3
CONNECTIONS = 4  # of each client, in turn
EACH = 60  # exchanges of a connection in a round
TICK = 1e-5


class Steady(asyncio.SelectorEventLoop):
    """A loop whose clock goes on by a tick each time it is looked at."""

    _now = 1_000.0

    def time(self) -> float:
        self._now += TICK
        return self._now


class Fixed(random.Random):  # spread, not secrecy
    """Always the same chance."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)


async def one(stage: Stage, client: Client, exchange: Exchange) -> None:
    """A whole exchange.

    Raises:
        Unexpected: the client didn't get the engine's answer.
    """
    stage.ask(client, exchange.request)
    await stage.connected()
    stage.answer(client, exchange.answer)
    if not (got := client.got()).startswith(b"HTTP/1.1 200 OK"):
        raise Unexpected(f"no good answer: {got[:300]!r}")


async def rehearse() -> int:
    """All of them; how many."""
    done = 0
    async with staged(TABLE) as stage:
        clients = [(kind, stage.client()) for kind in CLIENTS for _ in range(CONNECTIONS)]
        for _ in range(ROUNDS):
            for mixed in zip(*[exchanges(kind, EACH) for kind, _ in clients], strict=True):
                for (_, client), exchange in zip(clients, mixed, strict=True):
                    await one(stage, client, exchange)
                    done += 1
    return done


def main() -> int:
    """See the module."""
    random.Random = Fixed  # type: ignore[assignment,misc]
    with asyncio.Runner(loop_factory=Steady) as runner:
        sys.stderr.write(f"rehearsed {runner.run(rehearse())} exchanges\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
