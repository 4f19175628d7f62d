"""The process that starts a router's other processes, starts them again, and ends them; it serves nothing itself.

Beside every path. It has no loop and no thread: whenever it forks, the child is a fresh router that shares the memory
of what was imported. It holds the listeners, so that what waits to be accepted outlives any worker. A worker that ends
well is replaced; one that dies is started again, later each time; one that dies again and again at once ends the
router. Must not outlive its children, and they must not outlive it for longer than a shutdown takes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import uvloop

from headrace_api.commands import EXIT_ENVIRONMENT, EXIT_NEGATIVE, EnvironmentFailed
from headrace_router import pauses
from headrace_router.core.shared import SharedConnections, SharedStates
from headrace_router.listener.sockets import keep_alive, listening_now
from headrace_router.processes import control as words
from headrace_router.processes.kept import Kept
from headrace_router.processes.memory import LogTurn, SharedMemory
from headrace_router.processes.pages import serve_pages
from headrace_router.processes.worker import work
from headrace_router.server.one_of import OneOf
from headrace_router.server.server import ADMIN_BACKLOG, BACKLOG, Settings, cant_listen, raise_file_limit, url_of
from headrace_router.telemetry.form import IN_WORDS

log = logging.getLogger("headrace.router")

# One that ends within so many seconds of its start died at once; so many times on end, and the router ends.
AT_ONCE: Final = 10.0
MOST_AT_ONCE: Final = 5
# Seconds before the second start on end, doubled with each further one.
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
# Seconds that an end may take beyond delay and grace: last words, access log, spans.
LAST_STEPS: Final = 8.0


@dataclass(slots=True)
class _Child:
    """process: None: it serves the pages."""

    process: int | None
    pid: int
    control: socket.socket
    started: float
    serving: bool = False

    @property
    def name(self) -> str:
        return "the process of the pages" if self.process is None else f"process {self.process}"


@dataclass(slots=True)
class _Place:
    """A child to be: how often it was started, how often it died at once on end, and when it is to be started next."""

    starts: int = 0
    at_once: int = 0
    due: float | None = None
    child: _Child | None = None


class Supervisor:
    """See above. say: for people, once all serve."""

    def __init__(self, settings: Settings, processes: int, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._processes = processes
        self._say = say
        self._memory = SharedMemory(processes)
        self._kept = Kept()
        self._clients = _bound(settings.listen, BACKLOG)
        self._admin = _bound(settings.admin, ADMIN_BACKLOG)
        self._metrics = _bound(settings.metrics, ADMIN_BACKLOG) if settings.metrics is not None else []
        keep_alive(self._clients)
        self._places: dict[int | None, _Place] = {number: _Place() for number in (None, *range(processes))}
        self._came: list[int] = []
        self._woken, self._waking = socket.socketpair()
        self._said = False
        self._deadline: float | None = None
        self._code = 0

    def run(self) -> int:
        """Until all have ended; returns the exit code."""
        self._watch_signals()
        now = time.monotonic()
        # The first alone: what keeps it from starting is said once.
        self._places[None].due = self._places[0].due = now
        while True:
            self._start_due(time.monotonic())
            self._wait()
            self._obey()
            self._hear()
            self._reap()
            if self._deadline is not None and self._ended(time.monotonic()):
                return self._code

    def _start_due(self, now: float) -> None:
        if self._deadline is not None:
            return
        for number, place in self._places.items():
            if place.due is not None and place.due <= now:
                place.due = None
                place.starts += 1
                place.child = self._fork(number, now)
                self._introduce(number)

    def _introduce(self, number: int | None) -> None:
        """Connect the pages with a new worker, or new pages with all workers."""
        pages = self._places[None].child
        for other, place in self._places.items():
            if other is None or place.child is None or pages is None or number not in (None, other):
                continue
            ours, theirs = socket.socketpair()
            with ours, theirs:
                words.tell(place.child.control, words.PAGES, ours)
                what = f"{words.WORKER.decode()} {other} {place.child.pid} {place.starts}"
                words.tell(pages.control, what.encode(), theirs)

    def _patience(self, now: float) -> float | None:
        """Seconds until there is something to do, if nothing happens."""
        times = [place.due for place in self._places.values() if place.due is not None]
        if self._deadline is not None:
            times = [self._deadline]
        return max(0.0, min(times) - now) if times else None

    def _wait(self) -> None:
        waiting = [child.control for child in self._children() if not child.serving]
        select.select([self._woken, *waiting], [], [], self._patience(time.monotonic()))
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _hear(self) -> None:
        for child in self._children():
            if child.serving:
                continue
            with contextlib.suppress(OSError):
                child.serving = child.control.recv(64, socket.MSG_DONTWAIT) == words.SERVING
        if not self._said and (first := self._places[0].child) is not None and first.serving:
            self._first_serves()

    def _first_serves(self) -> None:
        now = time.monotonic()
        for place in self._places.values():
            if place.child is None and not place.starts:
                place.due = now
        if all(place.child is not None and place.child.serving for place in self._places.values()):
            self._said = True
            clients = url_of(self._clients[0].getsockname(), self._settings.scheme)
            apart = f", metrics {url_of(self._metrics[0].getsockname())}" if self._metrics else ""
            admin = url_of(self._admin[0].getsockname())
            these = f"{self._processes} processes, {IN_WORDS}"
            self._say(f"headrace router: serving on {clients}, admin {admin}{apart}, {these}")

    def _obey(self) -> None:
        while self._came:
            came = self._came.pop(0)
            if came == signal.SIGINT:
                self._end(words.HURRY if self._deadline is not None else words.NOW)
            elif came == signal.SIGTERM and self._deadline is None:
                self._end(words.DRAIN)

    def _end(self, how: bytes) -> None:
        if self._deadline is None:
            delay = self._settings.drain_delay if how == words.DRAIN else 0.0
            self._deadline = time.monotonic() + delay + self._settings.grace + LAST_STEPS
        for child in self._children():
            words.tell(child.control, how)
        # The workers have them still; who connects after they closed theirs must be refused, not left waiting.
        for each in self._clients:
            each.close()

    def _ended(self, now: float) -> bool:
        """Whether all have ended. Pages end last; what takes too long is killed."""
        assert self._deadline is not None
        living = self._children()
        if now >= self._deadline:
            for child in living:
                log.error("%s (pid %d) did not end in time and is killed", child.name, child.pid)
                os.kill(child.pid, signal.SIGKILL)
            self._code = self._code or EXIT_NEGATIVE
            self._deadline = now + LAST_STEPS
        if [child.process for child in living] == [None]:
            words.tell(living[0].control, words.END)
        return not living

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                for place in self._places.values():
                    if place.child is not None and place.child.pid == pid:
                        child, place.child = place.child, None
                        self._lost(place, child, os.waitstatus_to_exitcode(status))

    def _lost(self, place: _Place, child: _Child, code: int) -> None:
        child.control.close()
        if child.process is not None:
            self._memory.clear(child.process)
        if self._deadline is not None:
            if code:
                log.warning("%s (pid %d) %s while the router ended", child.name, child.pid, _how(code))
            return
        now = time.monotonic()
        if not code:
            # Somebody told it to.
            log.warning("%s (pid %d) drained and ended; it is replaced", child.name, child.pid)
            place.at_once, place.due = 0, now
            return
        if not self._said:
            # It has said itself why.
            self._code = code if code > 0 else EXIT_NEGATIVE
            self._end(words.NOW)
            return
        place.at_once = place.at_once + 1 if now - child.started < AT_ONCE else 0
        if place.at_once >= MOST_AT_ONCE:
            log.error("%s %s, at once for the %dth time on end: the router ends", child.name, _how(code), place.at_once)
            self._code = EXIT_NEGATIVE
            self._end(words.DRAIN)
            return
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (place.at_once - 1)) if place.at_once else 0.0
        log.warning("%s (pid %d) %s; it is started again in %.1f s", child.name, child.pid, _how(code), pause)
        place.due = now + pause

    def _children(self) -> list[_Child]:
        return [place.child for place in self._places.values() if place.child is not None]

    def _watch_signals(self) -> None:
        for each in (self._woken, self._waking):
            each.setblocking(False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda came, _: self._came.append(came))
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)

    def _fork(self, number: int | None, now: float) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            os._exit(self._in_child(number, theirs))
        theirs.close()
        return _Child(number, pid, ours, now)

    def _in_child(self, number: int | None, control: socket.socket) -> int:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Ctrl-C reaches the whole group; the supervisor says what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for each in (self._woken, self._waking, *(child.control for child in self._children())):
            each.close()
        name = "pages" if number is None else f"process {number}"
        code = EXIT_ENVIRONMENT
        try:
            _log_as(name)
            code = self._pages(control) if number is None else self._worker(number, control)
        except EnvironmentFailed as error:
            print(f"headrace: {error}", file=sys.stderr)  # noqa: T201
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
            sys.stdout.flush()
        return code

    def _worker(self, number: int, control: socket.socket) -> int:
        for each in (*self._admin, *self._metrics):
            each.close()
        self._memory.become(number)
        states, turn = SharedStates(self._memory), LogTurn(self._memory)
        leaves = SharedConnections(self._memory).leaves
        one_of = OneOf(number, self._processes, self._clients, states, turn, leaves)
        return uvloop.run(work(self._settings, one_of, control))

    def _pages(self, control: socket.socket) -> int:
        for each in self._clients:
            each.close()
        patience = self._settings.drain_delay + self._settings.grace + LAST_STEPS
        return uvloop.run(serve_pages(self._processes, self._kept, self._admin, self._metrics, control, patience))


def supervise(settings: Settings, processes: int, say: Callable[[str], None]) -> int:
    """Run a router of several processes until SIGTERM or Ctrl-C; returns the exit code.

    Raises:
        EnvironmentFailed: an address can't be listened on.
    """
    raise_file_limit()
    supervisor = Supervisor(settings, processes, say)
    # After this nothing is made that children could have in common.
    pauses.settle()
    return supervisor.run()


def _bound(at: tuple[str, int], backlog: int) -> Sequence[socket.socket]:
    try:
        return listening_now(*at, backlog)
    except OSError as error:
        raise cant_listen(at, error) from error


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _log_as(name: str) -> None:
    """Log lines say which process writes them."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s %(name)s [{name}] %(message)s"))
