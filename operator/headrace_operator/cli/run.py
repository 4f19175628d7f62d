"""``headrace run``: the operator, in a cluster, or on a directory of manifests with a state directory.

The one place of the operator that configures logging. Exit codes: 0 ended by a signal (or ``--once`` done),
2 wrong arguments or configuration, 3 the environment failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_api.commands import EXIT_DONE, EXIT_ENVIRONMENT, Command, EnvironmentFailed, InputError
from headrace_operator.cli.process import address_of, end_on_signals

if TYPE_CHECKING:
    from headrace_operator.controller.loop import Controller
    from headrace_operator.controller.metrics import OperatorMetrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--standalone",
        metavar="DIR",
        type=Path,
        help="without a cluster: a directory of manifests; edits are picked up",
    )
    parser.add_argument("--state", metavar="DIR", type=Path, help="where tables, statuses and Events are written")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the operator's configuration; hot-reloaded")
    parser.add_argument("--once", action="store_true", help="load, solve and publish once, then end")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve the operator's own /metrics and /healthz there")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: the pod's own account, else kubectl's rules")
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    parser.set_defaults(namespace=None)


def run(arguments: argparse.Namespace) -> int:
    """Run the operator until a signal ends it."""
    faults = _faults(arguments)
    if faults:
        raise InputError(faults)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    if arguments.standalone is None:
        from headrace_operator.cli.run_cluster import run_cluster

        return run_cluster(arguments)
    # It tells every event of the file system; what an edit comes to is told by the loop.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    from headrace_operator.publisher.state import locked

    with locked(arguments.state):
        return asyncio.run(_operate(arguments))


def _faults(arguments: argparse.Namespace) -> list[str]:
    found = []
    if arguments.metrics is not None and address_of(arguments.metrics) is None:
        found.append(f"--metrics: {arguments.metrics!r}; right would be HOST:PORT such as 127.0.0.1:9100")
    if arguments.standalone is None:
        if arguments.once:
            found.append("--once: only with --standalone; right would be no --once")
        return found
    if arguments.kubeconfig is not None or arguments.context is not None:
        found.append(
            "--kubeconfig, --context: not with --standalone, which speaks to no cluster; right would be neither"
        )
    if arguments.state is None:
        found.append("--state: missing; right would be a directory for tables and statuses")
    elif arguments.state.exists() and not arguments.state.is_dir():
        found.append(f"--state: {arguments.state} is not a directory")
    elif arguments.state.resolve() == arguments.standalone.resolve():
        found.append("--state: the same directory as --standalone; right would be another one")
    if not arguments.standalone.is_dir():
        found.append(f"--standalone: {arguments.standalone} is not a directory; right would be one with manifests")
    return found


async def _operate(arguments: argparse.Namespace) -> int:
    # Heavy imports wait until the arguments are known to be right.
    from headrace_operator.controller.clock import Clock
    from headrace_operator.controller.loop import Controller
    from headrace_operator.controller.metrics import OperatorMetrics
    from headrace_operator.controller.serve import loop_health, served
    from headrace_operator.controller.takeover import remembered
    from headrace_operator.loader.config_file import ConfigFile
    from headrace_operator.loader.loader import scrape_settings
    from headrace_operator.loader.sources import Sources
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
    source = Sources(scrape_settings(config_file.look().config), clock=clock.steady, follow=not arguments.once)
    controller = Controller(
        store, source, publisher, config_file, metrics, clock, remembered(read_memory(arguments.state))
    )
    source.on_change = controller.wake
    end_on_signals(stop)
    try:
        if arguments.once:
            return EXIT_DONE if await controller.once() else EXIT_ENVIRONMENT
        async with contextlib.AsyncExitStack() as stack:
            if arguments.metrics is not None:
                address = address_of(arguments.metrics)
                if address is None:
                    raise EnvironmentFailed(f"--metrics: {arguments.metrics!r} is no address")
                show_age = partial(_show_age, metrics, controller)
                alive = loop_health(controller.age, controller.patience)
                bound = await stack.enter_async_context(served(address, metrics, alive, before_page=show_age))
                log.info("headrace run: metrics on %s", bound)
            log.info("headrace run: %s, state %s, term %d", arguments.standalone, arguments.state, identity.term)
            watching = asyncio.create_task(watch(arguments.standalone, controller.wake, stop))
            stack.push_async_callback(_ended, watching)
            await controller.run(stop)
    finally:
        await source.close()
    return EXIT_DONE


def _show_age(metrics: OperatorMetrics, controller: Controller) -> None:
    metrics.loop_age.set(controller.age())


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


COMMAND = Command(help="run the operator on a directory of manifests", add_arguments=add_arguments, run=run)
