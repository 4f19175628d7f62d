"""A worker: a whole router on inherited listeners, which is told when to end and asked for what its pages would say.

Beside the request path. Questions are answered between turns of the loop, a small part at a time. Must end by itself,
gently, when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from headrace_router.processes import control as words
from headrace_router.processes.frames import Answer, Question, framed, read_frame
from headrace_router.server.one_of import OneOf
from headrace_router.server.server import Router, Settings

log = logging.getLogger("headrace.router")

# Seconds for the last counts to be taken.
LAST_COUNTS: Final = 1.0


class _Ending:
    """How this process is to end; ``told`` may come again and again."""

    def __init__(self) -> None:
        self.begun, self.hurry = asyncio.Event(), asyncio.Event()
        self.gentle = True

    def told(self, how: bytes) -> None:
        if how == words.HURRY:
            self.hurry.set()
        if how != words.DRAIN:
            self.gentle = False
        self.begun.set()


class _Answers:
    """Answers whoever serves the pages, by whatever socket it comes."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def hear(self, asker: socket.socket) -> None:
        """Answer on this socket until it closes."""
        task = asyncio.get_running_loop().create_task(self._answer_all(asker), name="answers for pages")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave the last counts, and end."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(LAST_COUNTS):
                for writer in self._writers:
                    await self._metrics(writer, 0)
        for writer in self._writers:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer_all(self, asker: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=asker)
        self._writers.append(writer)
        decoder = msgspec.msgpack.Decoder(Question)
        try:
            while (question := await read_frame(reader, decoder)) is not None:
                await self._answer(question, writer)
        except OSError:
            pass
        finally:
            self._writers.remove(writer)
            writer.close()

    async def _answer(self, question: Question, writer: asyncio.StreamWriter) -> None:
        if question.what == "metrics":
            await self._metrics(writer, question.number)
            return
        admin = self._router.admin
        if question.what == "ready":
            ready, told = admin.readiness()
            status, body = (200 if ready else 503), msgspec.json.encode(told)
        else:
            status, explained = admin.explained(question.query)
            body = msgspec.json.encode(explained)
        writer.write(framed(Answer(question.number, None, status, body)))
        await writer.drain()

    async def _metrics(self, writer: asyncio.StreamWriter, number: int) -> None:
        for part in self._router.admin.parts():
            writer.write(framed(Answer(number, part)))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(framed(Answer(number, None, 200)))
        await writer.drain()


async def work(settings: Settings, one_of: OneOf, control: socket.socket) -> int:
    """Serve until told to end; returns the exit code."""
    ending = _Ending()
    askers: list[socket.socket] = []
    hear: Callable[[socket.socket], None] = askers.append

    def told(message: bytes, given: socket.socket | None) -> None:
        if message == words.PAGES and given is not None:
            hear(given)
        else:
            ending.told(message)

    def alone() -> None:
        log.warning("the process that started this one is gone: no new work is taken, what runs is ended")
        ending.told(words.DRAIN)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.told, words.DRAIN)
    words.listen(control, told, alone)
    router = Router(settings, one_of)
    await router.start()
    answers = _Answers(router)
    for asker in askers:
        answers.hear(asker)
    hear = answers.hear
    # Whoever has no room for a new connection is to know who may have some.
    one_of.leaves(0, True, monotonic(), None)
    words.tell(control, words.SERVING)
    await ending.begun.wait()
    await router.stop(ending.hurry, drain_delay=None if ending.gentle else 0.0)
    await answers.close()
    return 0
