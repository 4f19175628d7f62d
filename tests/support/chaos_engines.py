"""Engines that fail in every way, by seeded chance: each request draws its own fate.

Answers can be told apart: a request carries a token, and every answer of an engine carries it at its beginning and end,
so that a client knows an answer of somebody else's, a piece that is missing, and an end that isn't one. Steady engines
are at most slow; the others may do anything.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from support.fake_engine import Exchange, FakeEngine

# Seconds that an engine which hangs stays away, at most: the router gives up long before.
HANG: Final = 60.0
FATES: Final = (
    "good",
    "slow",
    "full",
    "ill",
    "reset",
    "close",
    "half_close",
    "hang_before_head",
    "hang_after_head",
    "hang_in_body",
    "garbage",
    "answer_and_close",
)
WEIGHTS: Final = (30, 8, 4, 6, 14, 10, 4, 1, 1, 1, 4, 10)


def token_of(body: bytes) -> str:
    """The token of a request's body."""
    return str(json.loads(body)["user"])


def answer_bytes(token: str, *, stream: bool, size: int) -> list[bytes]:
    """A whole answer in pieces: a head, then what follows it."""
    if not stream:
        content = f"{token} {'x' * size} {token}"
        body = json.dumps({"choices": [{"message": {"content": content}}], "usage": {"completion_tokens": 3}}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return [head.encode(), body]
    events = [token, *("x" * 100 for _ in range(size // 100)), token]
    return [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        *(_chunk(json.dumps({"choices": [{"delta": {"content": text}}]})) for text in events),
        _chunk("[DONE]"),
        b"0\r\n\r\n",
    ]


def _chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


@dataclass
class ChaosEngine:
    """One engine. ``fates``: how often each was drawn; ``begun``: tokens of answers that it may have broken off after
    their first body byte."""

    rng: Random
    steady: bool
    fates: Counter[str] = field(default_factory=Counter)
    begun: set[str] = field(default_factory=set)
    engine: FakeEngine = field(init=False)
    _running: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.engine = FakeEngine(self._script)

    async def killed_now_and_then(self) -> None:
        """Stop and start again on the same port, until cancelled; what runs is cut."""
        while True:
            await asyncio.sleep(self.rng.uniform(2.0, 8.0))
            self.fates["killed"] += 1
            self.begun |= self._running
            await self.engine.stop()
            await asyncio.sleep(self.rng.uniform(0.05, 1.5))
            await self.engine.start()

    async def _script(self, exchange: Exchange) -> None:
        self.engine.requests.clear()
        rng = self.rng
        asked = json.loads(exchange.request.body)
        fate = rng.choice(("good", "slow")) if self.steady else rng.choices(FATES, WEIGHTS)[0]
        self.fates[fate] += 1
        token = asked["user"]
        pieces = answer_bytes(token, stream=asked.get("stream", False), size=asked["size"])
        self._running.add(token)
        try:
            await getattr(self, f"_{fate}")(exchange, pieces)
        finally:
            self._running.discard(token)

    async def _good(self, exchange: Exchange, pieces: list[bytes]) -> None:
        if self.rng.random() < 0.5:
            await exchange.send(b"".join(pieces))
        else:
            await exchange.send(*pieces)

    async def _slow(self, exchange: Exchange, pieces: list[bytes]) -> None:
        stop = self.rng.randrange(len(pieces))
        await exchange.send(*pieces[:stop])
        await asyncio.sleep(self.rng.uniform(0.0, 0.4))
        await exchange.send(*pieces[stop:])

    async def _full(self, exchange: Exchange, _pieces: list[bytes]) -> None:
        await exchange.answer(b"{}", self.rng.choice(("429 Too Many Requests", "503 Busy")), ("Retry-After: 0",))

    async def _ill(self, exchange: Exchange, _pieces: list[bytes]) -> None:
        await exchange.answer(b"{}", self.rng.choice(("500 Oops", "502 Oops", "504 Oops")))

    async def _reset(self, exchange: Exchange, pieces: list[bytes]) -> None:
        await self._some_of(exchange, pieces)
        exchange.reset()

    async def _close(self, exchange: Exchange, pieces: list[bytes]) -> None:
        await self._some_of(exchange, pieces)
        exchange.close()

    async def _half_close(self, exchange: Exchange, pieces: list[bytes]) -> None:
        await self._some_of(exchange, pieces)
        exchange.writer.write_eof()
        await exchange.closed_by_router()

    async def _hang_before_head(self, exchange: Exchange, _pieces: list[bytes]) -> None:
        await self._hang(exchange)

    async def _hang_after_head(self, exchange: Exchange, pieces: list[bytes]) -> None:
        await exchange.send(pieces[0])
        await self._hang(exchange)

    async def _hang_in_body(self, exchange: Exchange, pieces: list[bytes]) -> None:
        self.begun.add(token_of(exchange.request.body))
        await exchange.send(pieces[0], pieces[1][: len(pieces[1]) // 2])
        await self._hang(exchange)

    async def _garbage(self, exchange: Exchange, pieces: list[bytes]) -> None:
        junk = bytes(self.rng.randrange(256) for _ in range(self.rng.randrange(1, 80)))
        await exchange.send(junk + b"\r\n\r\n", *pieces[1:])
        exchange.close()

    async def _answer_and_close(self, exchange: Exchange, pieces: list[bytes]) -> None:
        await exchange.send(*pieces)
        exchange.close()

    async def _some_of(self, exchange: Exchange, pieces: list[bytes]) -> None:
        """A beginning of the answer, cut at any byte."""
        whole = b"".join(pieces)
        end = self.rng.randrange(len(whole))
        if end > len(pieces[0]):
            self.begun.add(token_of(exchange.request.body))
        await exchange.send(whole[:end])

    async def _hang(self, exchange: Exchange) -> None:
        async with asyncio.timeout(HANG):
            await exchange.closed_by_router()
