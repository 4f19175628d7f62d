"""Runs a fleet as a process of its own: ``python -m headrace_lab.engine --spec FILE``.

Off the request path. One line of JSON on standard output tells the ports once all are open; then it serves until
SIGTERM or SIGINT, or until standard input ends when asked, so that no fleet outlives the demo that started it. In a
pod, where a signal means that others will serve, ``--grace`` lets what runs end first, as real engines do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
import uvloop

from headrace_api.commands import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_INPUT, InputError
from headrace_lab.engine.fleet import Fleet, FleetSpec, read_spec


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(0, 65536):
        pass
    loop.call_soon_threadsafe(stop.set)


async def _serve(spec: FleetSpec, *, exit_with_stdin: bool, grace: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if exit_with_stdin:
        threading.Thread(target=_watch_stdin, args=(loop, stop), daemon=True).start()
    fleet = Fleet(spec)
    await fleet.start()
    line = {"pid": os.getpid(), "control": fleet.control_url, "engines": fleet.urls}
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()
    await stop.wait()
    if grace:
        await fleet.drain(grace)
    await fleet.stop()


def main() -> int:
    """Serve a spec; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m headrace_lab.engine", description="simulated engines")
    parser.add_argument("--spec", type=Path, required=True, help="the fleet, as JSON")
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input ends")
    parser.add_argument(
        "--grace", type=float, default=0.0, metavar="S", help="seconds that running requests have after a signal"
    )
    arguments = parser.parse_args()
    try:
        spec = read_spec(arguments.spec)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(spec, exit_with_stdin=arguments.exit_with_stdin, grace=arguments.grace))
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INPUT
    except OSError as error:
        sys.stderr.write(f"a port could not be opened: {error}\n")
        return EXIT_ENVIRONMENT
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
