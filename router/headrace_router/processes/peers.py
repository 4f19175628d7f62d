"""The workers as whoever serves the pages sees them: asked within bounds, and their counts kept beyond their ends.

Beside every path. A worker that hangs costs a page its patience, never the page. Counters of what has ended go on to
count, or a restart would look like work undone. Must not be asked the same again while it hasn't answered.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace_router.processes.frames import Answer, Question, framed, read_frame
from headrace_router.processes.kept import Kept
from headrace_router.telemetry.snapshot import Merged, Part

# Different questions that one worker is asked at once.
MOST_ASKED: Final = 64


class Answered(NamedTuple):
    """parts: of metrics; status and body (JSON): of everything else."""

    parts: list[Part]
    status: int
    body: bytes


class _Asked:
    def __init__(self, key: tuple[str, ...], future: asyncio.Future[Answered | None]) -> None:
        self.key = key
        self.future = future
        self.parts: list[Part] = []


class Peer:
    """One worker's life. last: its metrics when it last told all of them. heard: when it last said anything."""

    def __init__(self, process: int, pid: int, ended: Callable[[Peer], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.process = process
        self.pid = pid
        self.last: list[Part] = []
        self.told_at = self.heard = self._loop.time()
        self._ended = ended
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._by_key: dict[tuple[str, ...], _Asked] = {}
        self._unasked: list[Part] = []
        self._writer: asyncio.StreamWriter | None = None

    async def run(self, connection: socket.socket) -> None:
        """Take in what it says until it ends."""
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        decoder = msgspec.msgpack.Decoder(Answer)
        try:
            while (answer := await read_frame(reader, decoder)) is not None:
                self.heard = self._loop.time()
                self._take(answer)
        finally:
            self._writer.close()
            for asked in list(self._asked.values()):
                self._end(asked, None)
            self._ended(self)

    async def ask(self, what: str, query: Mapping[str, str], seconds: float) -> Answered | None:
        """Its answer; None: not within ``seconds``, or it has ended."""
        key = (what, *(text for item in sorted(query.items()) for text in item))
        asked = self._by_key.get(key)
        if asked is None:
            if len(self._asked) >= MOST_ASKED or self._writer is None or self._writer.is_closing():
                return None
            self._number += 1
            asked = self._asked[self._number] = self._by_key[key] = _Asked(key, self._loop.create_future())
            self._writer.write(framed(Question(self._number, what, dict(query))))
        await asyncio.wait({asked.future}, timeout=seconds)
        return asked.future.result() if asked.future.done() else None

    def _take(self, answer: Answer) -> None:
        asked = self._asked.get(answer.number)
        parts = asked.parts if asked is not None else self._unasked
        if answer.part is not None:
            parts.append(answer.part)
            return
        if asked is None or asked.key[0] == "metrics":
            self.last = parts
            self.told_at = self._loop.time()
        if asked is not None:
            del self._asked[answer.number]
            self._end(asked, Answered(parts, answer.status, answer.body))

    def _end(self, asked: _Asked, answered: Answered | None) -> None:
        self._by_key.pop(asked.key, None)
        if not asked.future.done():
            asked.future.set_result(answered)


class Peers:
    """All workers that live, and what those that ended had counted."""

    def __init__(self, kept: Kept) -> None:
        self.living: dict[int, Peer] = {}
        self.starts: dict[int, int] = {}
        self._keep = kept
        self._kept = kept.load()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, process: int, pid: int, starts: int, connection: socket.socket) -> None:
        """A worker was started, or whoever serves the pages was: ``connection`` leads to it."""
        peer = Peer(process, pid, self._ended)
        if (before := self.living.get(process)) is not None:
            self._ended(before)
        self.living[process] = peer
        self.starts[process] = starts
        task = asyncio.get_running_loop().create_task(peer.run(connection), name=f"worker {process}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def kept(self) -> list[Part]:
        """What workers that have ended had counted."""
        return self._kept

    async def ask(self, what: str, query: Mapping[str, str], seconds: float) -> dict[Peer, Answered | None]:
        """All that live, at once."""
        peers = [peer for _, peer in sorted(self.living.items())]
        answers = await asyncio.gather(*(peer.ask(what, query, seconds) for peer in peers))
        return dict(zip(peers, answers, strict=True))

    async def close(self) -> None:
        """Let go of all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, peer: Peer) -> None:
        if self.living.get(peer.process) is peer:
            del self.living[peer.process]
            self._kept = list(counted((self._kept, peer.last)))
            self._keep.save(self._kept)


def counted(ended: Iterable[Iterable[Part]]) -> Iterator[Part]:
    """What was only ever counted, of processes that have ended, as of one."""
    merged = Merged()
    for parts in ended:
        for part in parts:
            if part.kind != "gauge":
                merged.add(part, "", ended=True)
    return merged.parts()
