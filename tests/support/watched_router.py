"""A router that tells what it holds: `python -m support.watched_router TABLE PROCESSES`; SIGUSR1 asks a process of it.

Each answer is a line of JSON on stdout: its pid, tasks, open descriptors, resident bytes, and how many exchanges,
client connections and connections to engines exist (reachable or not: after a collection nothing should be left of
those that ended).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import uvloop

from headrace_router.listener.client_connection import ClientConnection
from headrace_router.processes import supervisor
from headrace_router.proxy.exchange import Exchange
from headrace_router.server.server import Settings, log_to_stderr, serve
from headrace_router.tables.tables_from import TablesFrom
from headrace_router.upstream.connection import Connection

WATCHED = (Exchange, ClientConnection, Connection)
P = ParamSpec("P")
T = TypeVar("T")


def held() -> dict[str, int]:
    """What the process holds now."""
    gc.unfreeze()
    gc.collect()
    kinds = Counter(type(each).__name__ for each in gc.get_objects() if type(each) in WATCHED)
    gc.freeze()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "pid": os.getpid(),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "exchanges": kinds[Exchange.__name__],
        "clients": kinds[ClientConnection.__name__],
        "engines": kinds[Connection.__name__],
    }


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _tell() -> None:
    sys.stdout.write(json.dumps(held()) + "\n")
    sys.stdout.flush()


def telling(run: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same, of a process that can be asked."""

    async def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell)
        return await run(*args, **kwargs)

    return asked


def main(table: Path, processes: int) -> int:
    """Serve until SIGTERM."""
    here = ("127.0.0.1", 0)
    settings = Settings(TablesFrom((table,)), listen=here, admin=here, drain_delay=0.0, grace=5.0)
    if processes == 1:
        return uvloop.run(telling(serve)(settings, _say))
    for name in ("work", "serve_pages"):
        setattr(supervisor, name, telling(getattr(supervisor, name)))
    return supervisor.supervise(settings, processes, _say)


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
