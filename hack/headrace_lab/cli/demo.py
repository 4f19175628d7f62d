"""``headrace demo``: everything on this machine, with a live view, a summary and an exit code.

Exit: 0 nothing was lost that need not be; 1 something was; 2 an option is wrong; 3 the environment failed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from headrace_api.commands import Command, EnvironmentFailed, InputError
from headrace_lab.demo.options import DEFAULT_DIVISOR, DEFAULT_DURATION, DEFAULT_RATE, Options

WIDTH = 110  # columns where there is no terminal to ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``headrace demo``."""
    parser.add_argument(
        "--duration",
        type=float,
        default=DEFAULT_DURATION,
        metavar="S",
        help="seconds of replay, a warm-up of a seventh included (%(default)g)",
    )
    parser.add_argument(
        "--rate", type=float, default=DEFAULT_RATE, metavar="R", help="requests/s over all front-ends (%(default)g)"
    )
    parser.add_argument(
        "--length-divisor",
        type=int,
        default=DEFAULT_DIVISOR,
        metavar="N",
        help="what the traces' prompt and answer lengths are divided by: 1, 2, 4, 8, 16 or 32 (%(default)d)",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep manifests, tables, status and logs there")
    parser.add_argument("--plain", action="store_true", help="plain lines even on a terminal")
    parser.add_argument(
        "--chaos", choices=("operator",), help="also kill -9 the operator in the middle, and restart it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; returns its exit code."""
    options = Options(
        duration=arguments.duration,
        rate=arguments.rate,
        length_divisor=arguments.length_divisor,
        report=arguments.report,
        keep=arguments.keep,
        plain=arguments.plain,
        chaos=arguments.chaos,
    )
    check(options)
    try:
        return asyncio.run(_main(options))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


def check(options: Options) -> None:
    """Raises InputError naming every option that is out of range."""
    from headrace_lab.demo.script import script
    from headrace_lab.workload.requests import WorkloadSpec
    from headrace_lab.workload.requests import check as check_spec

    faults = []
    try:
        script(options.duration)
    except ValueError as error:
        faults.append(f"--{error}")
    for spec in (WorkloadSpec(60.0, options.rate, 1), WorkloadSpec(60.0, 1.0, options.length_divisor)):
        try:
            check_spec(spec)
        except ValueError as error:
            faults.append(f"--{error}")
    if (
        options.keep is not None
        and options.keep.exists()
        and (not options.keep.is_dir() or any(options.keep.iterdir()))
    ):
        faults.append(f"--keep: {options.keep} is not an empty folder; right would be a new one")
    if options.report is not None and not options.report.resolve().parent.is_dir():
        faults.append(f"--report: there is no folder {options.report.resolve().parent}; right would be one that exists")
    if faults:
        raise InputError(faults)


async def _main(options: Options) -> int:
    import msgspec
    from rich.console import Console

    from headrace_lab.demo.live import LiveScreen
    from headrace_lab.demo.plain import PlainScreen
    from headrace_lab.demo.run import Screen, run_demo
    from headrace_lab.demo.summary import print_summary

    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    screen: Screen = PlainScreen(sys.stdout) if options.plain or not console.is_terminal else LiveScreen(console)
    try:
        report = await run_demo(options, screen)
    except ExceptionGroup as group:
        raise _first(group) from None
    print_summary(report, console)
    if options.report is not None:
        options.report.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        screen.say(f"report: {options.report}")
    if options.keep is not None:
        screen.say(f"kept: {options.keep}")
    return report.exit_code


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The failure behind a group of tasks' failures: what the environment did wrong, before what followed from it."""
    failed = group.subgroup(EnvironmentFailed) or group
    cause: Exception = failed
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    return cause


COMMAND = Command(
    help="the whole system on this machine: a real trace, three front-ends, simulated engines, faults",
    add_arguments=add_arguments,
    run=run,
)
