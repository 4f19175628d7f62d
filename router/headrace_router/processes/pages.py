"""The admin and metrics pages of a router of several processes: all of them on one page, each named where it matters.

Beside every path, in a process of its own, so that no worker's trouble is the pages'. A worker that doesn't answer in
time is left out and said to be. Must not be asked by clients, nor answer for a worker what it hasn't said.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_router.background import for_ever
from headrace_router.processes import control as words
from headrace_router.processes.families import restarts, up
from headrace_router.processes.kept import Kept
from headrace_router.processes.peers import Answered, Peer, Peers
from headrace_router.server.admin import as_json, as_metrics
from headrace_router.telemetry.snapshot import Merged, page

# Seconds that a page waits for a worker: a scrape has several, the kubelet's probe one.
METRICS_PATIENCE: Final = 2.0
READY_PATIENCE: Final = 0.7
# Seconds between two readings of all workers' metrics, asked for or not: what one counts since is lost if it is killed.
READ_EVERY: Final = 10.0
# Seconds without a word after which a worker counts as hung: three readings.
HUNG: Final = 30.0
# Parts merged between two turns of the loop.
_STEP: Final = 8
# Seconds to look whether workers have ended, once nobody tells any more.
_LOOK: Final = 0.1


class Pages:
    """To be made inside a running loop. processes: how many workers there are to be; kept: counts of those gone."""

    def __init__(self, processes: int, kept: Kept) -> None:
        self._loop = asyncio.get_running_loop()
        self.processes = processes
        self.peers = Peers(kept)
        self.draining = False

    def application(self) -> web.Application:
        """The routes of the admin listener."""
        app = self.metrics_only()
        app.add_routes([web.get("/readyz", self._readyz), web.get("/debug/explain", self._explain)])
        return app

    def metrics_only(self) -> web.Application:
        """Those of a listener for whoever reads metrics."""
        app = web.Application()
        app.add_routes([web.get("/healthz", self._healthz), web.get("/metrics", self._metrics)])
        return app

    async def read_for_ever(self) -> None:
        """Hear of each worker now and then, whether or not anybody asks."""
        while True:
            await asyncio.sleep(READ_EVERY)
            now = self._loop.time()
            late = [peer for peer in self.peers.living.values() if now - peer.told_at >= READ_EVERY / 2]
            await asyncio.gather(*(peer.ask("metrics", {}, READ_EVERY) for peer in late))

    async def _healthz(self, _request: web.Request) -> web.Response:
        now = self._loop.time()
        for peer in self.peers.living.values():
            if now - peer.heard > HUNG:
                return web.Response(text=f"{_silent(peer, now)}\n", status=503)
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        answers = await self.peers.ask("ready", {}, READY_PATIENCE)
        told = {peer.process: self._readiness(peer, answer) for peer, answer in answers.items()}
        details = [told.get(number) or _missing(number) for number in range(self.processes)]
        draining = self.draining or any(detail.get("draining", False) for detail in details)
        ready = not draining and all(detail["ready"] for detail in details)
        frontend = next((name for detail in details if (name := detail.get("frontend"))), None)
        detail = {"ready": ready, "draining": draining, "frontend": frontend, "processes": details}
        return as_json(detail, 200 if ready else 503)

    def _readiness(self, peer: Peer, answer: Answered | None) -> dict[str, Any]:
        head: dict[str, Any] = {"process": peer.process, "pid": peer.pid}
        if answer is None:
            return head | {"ready": False, "why": _silent(peer, self._loop.time())}
        return head | msgspec.json.decode(answer.body, type=dict[str, Any])

    async def _explain(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        asked = query.pop("process", "")
        numbers = [str(number) for number in range(self.processes)]
        if asked and asked not in numbers:
            wrong = f"process is {asked[:32]!r}; right would be a number from 0 to {self.processes - 1}"
            return as_json({"error": wrong}, 400)
        for number, peer in sorted(self.peers.living.items()):
            if asked not in ("", str(number)):
                continue
            answer = await peer.ask("explain", query, METRICS_PATIENCE)
            if answer is not None:
                headers = {"x-headrace-process": str(number)}
                body = answer.body + b"\n"
                return web.Response(body=body, status=answer.status, headers=headers, content_type="application/json")
        who = f"process {asked}" if asked else "a process"
        return as_json({"error": f"{who} that answers is not there now"}, 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        answers = await self.peers.ask("metrics", {}, METRICS_PATIENCE)
        merged = Merged()
        for part in self.peers.kept():
            merged.add(part, "", ended=True)
        heard = dict.fromkeys(range(self.processes), 0.0)
        for peer, answer in answers.items():
            # Who doesn't answer still has counted what it had; of what it stands at nothing is known.
            parts = peer.last if answer is None else answer.parts
            heard[peer.process] = float(answer is not None)
            for number, part in enumerate(parts):
                merged.add(part, str(peer.process), ended=answer is None)
                if number % _STEP == 0:
                    await asyncio.sleep(0)
        own = (up(heard), restarts({number: starts - 1 for number, starts in self.peers.starts.items()}))
        for part in own:
            merged.add(part, "")
        return as_metrics(await page(merged.parts()))


def _silent(peer: Peer, now: float) -> str:
    return f"process {peer.process} (pid {peer.pid}) has not answered for {now - peer.heard:.1f} s"


def _missing(number: int) -> dict[str, Any]:
    return {"process": number, "ready": False, "why": "it has ended and is started again"}


async def serve_pages(
    processes: int,
    kept: Kept,
    admin: Sequence[socket.socket],
    metrics: Sequence[socket.socket],
    control: socket.socket,
    patience: float,
) -> int:
    """Serve until the supervisor says that all workers have ended; returns the exit code.

    patience: seconds that workers have to end if nobody says so.
    """
    pages = Pages(processes, kept)
    loop = asyncio.get_running_loop()
    ended, alone = asyncio.Event(), asyncio.Event()

    def told(message: bytes, given: socket.socket | None) -> None:
        if given is not None:
            _, process, pid, starts = message.split()
            pages.peers.add(int(process), int(pid), int(starts), given)
        elif message == words.END:
            ended.set()
        else:
            pages.draining = True

    def left_alone() -> None:
        pages.draining = True
        alone.set()

    # Whoever ends a whole group of processes must not end the pages before what they tell of.
    loop.add_signal_handler(signal.SIGTERM, lambda: None)
    words.listen(control, told, left_alone)
    runners = []
    for application, sockets in ((pages.application(), admin), (pages.metrics_only(), metrics)):
        runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await runner.setup()
        runners.append(runner)
        for each in sockets:
            await web.SockSite(runner, each).start()
    reading = asyncio.create_task(for_ever("metrics of workers", pages.read_for_ever), name="metrics of workers")
    words.tell(control, words.SERVING)
    waits = [asyncio.create_task(event.wait()) for event in (ended, alone)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    end = loop.time() + patience
    while not ended.is_set() and pages.peers.living and loop.time() < end:  # noqa: ASYNC110 - for the end alone
        await asyncio.sleep(_LOOK)
    for task in (*waits, reading):
        task.cancel()
    await asyncio.gather(*waits, reading, return_exceptions=True)
    await pages.peers.close()
    for runner in runners:
        await runner.cleanup()
    return 0
