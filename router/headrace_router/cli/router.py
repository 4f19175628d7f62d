"""``headrace router``: the data plane of one front-end.

Beside the request path: reads arguments, starts the loop. Must import what is heavy only when it runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Final

from headrace_api.commands import Command, InputError
from headrace_router.cli.access_arguments import add_access_arguments, read_access_arguments
from headrace_router.cli.limit_arguments import add_limit_arguments, read_limit_arguments
from headrace_router.cli.table_arguments import add_table_arguments, read_table_arguments
from headrace_router.cli.trace_arguments import add_trace_arguments, read_trace_arguments
from headrace_router.http1.numbers import whole

MOST_PROCESSES: Final = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--frontend", metavar="NAME", help="the front-end served (default: the one the tables name)")
    add_table_arguments(parser)
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8080", help="for clients (%(default)s)")
    parser.add_argument(
        "--admin", metavar="HOST:PORT", default="127.0.0.1:9090", help="metrics, health, explanations (%(default)s)"
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="metrics and /healthz alone, beside --admin")
    add_access_arguments(parser)
    add_limit_arguments(parser)
    parser.add_argument(
        "--drain-delay", metavar="S", default="5", help="seconds of serving on after SIGTERM (%(default)s)"
    )
    parser.add_argument("--grace", metavar="S", default="20", help="seconds that streams have after that (%(default)s)")
    parser.add_argument(
        "--processes",
        metavar="N",
        default="1",
        help="processes that serve together as one router, each at most a core's worth (%(default)s)",
    )
    parser.add_argument("--access-log", action="store_true", help="one JSON line a request on stdout")
    add_trace_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM; 0 after a clean end.

    Raises:
        InputError: an argument is wrong. EnvironmentFailed: an address can't be listened on.
    """
    faults: list[str] = []
    listen = _address("--listen", arguments.listen, faults)
    admin = _address("--admin", arguments.admin, faults)
    drain_delay = _seconds("--drain-delay", arguments.drain_delay, faults)
    grace = _seconds("--grace", arguments.grace, faults)
    metrics = _address("--metrics", arguments.metrics, faults) if arguments.metrics is not None else None
    processes = whole(arguments.processes, MOST_PROCESSES)
    if not processes:
        faults.append(f"--processes {arguments.processes}: not a number of processes from 1 to {MOST_PROCESSES}")
    tables = read_table_arguments(arguments, faults)
    access = read_access_arguments(arguments, faults)
    limits = read_limit_arguments(arguments, faults)
    traces = read_trace_arguments(arguments, faults)
    if faults:
        raise InputError(faults)

    import uvloop

    from headrace_router.server.server import Settings, log_to_stderr, serve

    log_to_stderr()
    settings = Settings(
        tables,
        arguments.frontend,
        listen,
        admin,
        drain_delay,
        grace,
        arguments.access_log,
        access=access,
        metrics=metrics,
        limits=limits,
        traces=traces,
    )
    if processes is None or processes == 1:
        return uvloop.run(serve(settings, _say))

    from headrace_router.processes.supervisor import supervise

    return supervise(settings, processes, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _address(flag: str, text: str, faults: list[str]) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port[:9]) > 65535:
        faults.append(f"{flag} {text}: not an address; right would be 127.0.0.1:8080 or [::1]:0")
        return "", 0
    return host.strip("[]"), int(port)


def _seconds(flag: str, text: str, faults: list[str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 86_400:
        faults.append(f"{flag} {text}: not a number of seconds from 0 to 86400")
        return 0.0
    return value


COMMAND = Command(help="serve clients of one front-end by its routing tables", add_arguments=add_arguments, run=run)
