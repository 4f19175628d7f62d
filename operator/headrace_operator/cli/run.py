"""``headrace run``: the operator on a directory of manifests, tables and statuses in a state directory.

The one place of the operator that configures logging and signals. Exit codes: 0 ended by a signal (or ``--once`` done),
2 wrong arguments or configuration, 3 the environment failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

from headrace_api.commands import EXIT_DONE, EXIT_ENVIRONMENT, Command, EnvironmentFailed, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--standalone", metavar="DIR", type=Path, help="directory of manifests; edits are picked up")
    parser.add_argument("--state", metavar="DIR", type=Path, help="where tables, statuses and Events are written")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the operator's configuration; hot-reloaded")
    parser.add_argument("--once", action="store_true", help="load, solve and publish once, then end")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve the operator's own /metrics and /healthz there")


def run(arguments: argparse.Namespace) -> int:
    """Run the operator until a signal ends it."""
    if arguments.standalone is None:
        print(
            "headrace: running in a cluster comes later; right would be: headrace run --standalone DIR --state DIR",
            file=sys.stderr,
        )
        return EXIT_ENVIRONMENT
    faults = _faults(arguments)
    if faults:
        raise InputError(faults)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    # It tells every event of the file system; what an edit comes to is told by the loop.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    from headrace_operator.publisher.state import locked

    with locked(arguments.state):
        return asyncio.run(_operate(arguments))


def _faults(arguments: argparse.Namespace) -> list[str]:
    found = []
    if arguments.state is None:
        found.append("--state: missing; right would be a directory for tables and statuses")
    elif arguments.state.exists() and not arguments.state.is_dir():
        found.append(f"--state: {arguments.state} is not a directory")
    elif arguments.state.resolve() == arguments.standalone.resolve():
        found.append("--state: the same directory as --standalone; right would be another one")
    if not arguments.standalone.is_dir():
        found.append(f"--standalone: {arguments.standalone} is not a directory; right would be one with manifests")
    if arguments.metrics is not None and _address(arguments.metrics) is None:
        found.append(f"--metrics: {arguments.metrics!r}; right would be HOST:PORT such as 127.0.0.1:9100")
    return found


def _address(text: str) -> tuple[str, int] | None:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        return None
    return host.strip("[]") or "127.0.0.1", int(port)


async def _operate(arguments: argparse.Namespace) -> int:
    # Heavy imports wait until the arguments are known to be right.
    from headrace_operator.controller.clock import Clock
    from headrace_operator.controller.loop import Controller
    from headrace_operator.controller.metrics import OperatorMetrics
    from headrace_operator.controller.serve import served
    from headrace_operator.loader.config_file import ConfigFile
    from headrace_operator.loader.loader import scrape_settings
    from headrace_operator.loader.scrape import Scraper
    from headrace_operator.publisher.records import read_memory
    from headrace_operator.publisher.standalone import StandalonePublisher
    from headrace_operator.publisher.state import start_term
    from headrace_operator.store.directory import DirectoryStore
    from headrace_operator.store.generations import stored_generations
    from headrace_operator.store.watch import watch

    log = logging.getLogger(__name__)
    config_file = ConfigFile(arguments.config)
    identity = start_term(arguments.state)
    clock, metrics = Clock(), OperatorMetrics()
    publisher = StandalonePublisher(arguments.state, identity)
    store = DirectoryStore(arguments.standalone, generations=stored_generations(publisher.stored))
    stop = asyncio.Event()
    source = Scraper(scrape_settings(config_file.look().config), clock=clock.steady, follow=not arguments.once)
    controller = Controller(store, source, publisher, config_file, metrics, clock, read_memory(arguments.state))
    source.on_change = controller.wake
    _end_on_signals(stop)
    try:
        if arguments.once:
            return EXIT_DONE if await controller.once() else EXIT_ENVIRONMENT
        async with contextlib.AsyncExitStack() as stack:
            if arguments.metrics is not None:
                address = _address(arguments.metrics)
                if address is None:
                    raise EnvironmentFailed(f"--metrics: {arguments.metrics!r} is no address")
                bound = await stack.enter_async_context(served(address, metrics, controller.age, controller.patience))
                log.info("headrace run: metrics on %s", bound)
            log.info("headrace run: %s, state %s, term %d", arguments.standalone, arguments.state, identity.term)
            watching = asyncio.create_task(watch(arguments.standalone, controller.wake, stop))
            stack.push_async_callback(_ended, watching)
            await controller.run(stop)
    finally:
        await source.close()
    return EXIT_DONE


def _end_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


COMMAND = Command(help="run the operator on a directory of manifests", add_arguments=add_arguments, run=run)
