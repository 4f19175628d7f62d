"""The program ``headrace``: finds commands by entry point, runs one, turns failures into messages and exit codes.

Exit codes: 0 done, 1 the answer is negative, 2 the input is wrong, 3 the environment failed. No tracebacks for people
(HEADRACE_DEBUG=1 shows them).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

GROUP = "headrace.commands"
ORDER = ("plan", "explain", "run", "router", "demo")


def commands() -> list[EntryPoint]:
    """Installed commands, in the order people meet them, unknown ones last by name."""
    rank = {name: position for position, name in enumerate(ORDER)}
    return sorted(entry_points(group=GROUP), key=lambda point: (rank.get(point.name, len(ORDER)), point.name))


def load(point: EntryPoint) -> Any:
    """The command behind an entry point, or None when its part of the distribution is not installed."""
    try:
        return point.load()
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("headrace_") and os.environ.get("HEADRACE_DEBUG"):
            raise
        return None


def build_parser() -> argparse.ArgumentParser:
    """The argument parser with every installed command."""
    parser = argparse.ArgumentParser(
        prog="headrace", description="An explicit, explainable router for LLM inference fleets."
    )
    parser.add_argument("--version", action="version", version=f"headrace {version('headrace')}")
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for point in commands():
        command = load(point)
        if command is None:
            continue
        sub = subparsers.add_parser(point.name, help=command.help, description=command.help)
        command.add_arguments(sub)
        sub.set_defaults(_run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    run = getattr(arguments, "_run", None)
    if run is None:
        parser.print_help()
        return 2
    try:
        return int(run(arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        faults = getattr(error, "faults", None)
        if faults is not None:
            print("\n".join(faults), file=sys.stderr)
            return 2
        print(f"headrace: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
