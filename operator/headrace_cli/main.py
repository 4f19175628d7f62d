"""The program ``headrace``: finds commands by entry point, runs one, turns failures into messages and exit codes.

Exit codes: 0 done, 1 the answer is negative, 2 the input is wrong, 3 the environment failed. No tracebacks for people
(HEADRACE_DEBUG=1 shows them).
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points, version
from typing import Any

from headrace_cli import completion

GROUP = "headrace.commands"
ORDER = ("plan", "explain", "discover", "freeze", "drain", "resume", "run", "router", "demo")
# The exit codes of headrace_api.commands, which this program must not import.
EXIT_DONE, EXIT_INPUT, EXIT_ENVIRONMENT, EXIT_INTERRUPTED = 0, 2, 3, 130


def commands() -> list[EntryPoint]:
    """Installed commands, in the order people meet them, unknown ones last by name."""
    rank = {name: position for position, name in enumerate(ORDER)}
    return sorted(entry_points(group=GROUP), key=lambda point: (rank.get(point.name, len(ORDER)), point.name))


def lacking(point: EntryPoint) -> str | None:
    """The first missing package of the point's extra; loading tells nothing, as commands import theirs when run."""
    for requirement in (point.dist.requires or ()) if point.dist else ():
        name = re.match(r"[\w.-]+", requirement)
        if name and any(re.search(rf"extra *== *['\"]{re.escape(extra)}['\"]", requirement) for extra in point.extras):
            try:
                distribution(name[0])
            except PackageNotFoundError:
                return name[0]
    return None


def load(point: EntryPoint) -> Any:
    """The command behind an entry point, or None when its part of the distribution is not installed."""
    if lacking(point):
        return None
    try:
        return point.load()
    except ModuleNotFoundError:
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        return None


def build_parser() -> argparse.ArgumentParser:
    """The argument parser with every installed command."""
    plug_in = sys.argv[0].rpartition(os.sep)[2].startswith("kubectl-")
    parser = argparse.ArgumentParser(
        prog="kubectl headrace" if plug_in else "headrace",
        description="An explicit, explainable router for LLM inference fleets.",
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
    _add_completion(subparsers)
    return parser


def _add_completion(subparsers: Any) -> None:
    """The one command that the program itself has: a completion script for the user's shell."""
    about = "print a shell's completion script: source <(headrace completion bash)"
    sub = subparsers.add_parser("completion", help=about, description=about)
    sub.add_argument("shell", choices=completion.SHELLS)

    def run(arguments: argparse.Namespace) -> int:
        print(completion.script(arguments.shell, subparsers.choices), end="")
        return 0

    sub.set_defaults(_run=run)


def settle_streams() -> None:
    """Make what is written never fail for the locale's or the caller's sake.

    Files and pipes get UTF-8; a terminal of another encoding shows "?" for what it lacks; a closed stream takes all.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    settle_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    for point in commands():
        if words[:1] == [point.name] and (package := lacking(point)):
            extra = ",".join(point.extras)
            print(
                f"headrace {point.name}: {package} is not installed; right would be headrace[{extra}]", file=sys.stderr
            )
            return EXIT_ENVIRONMENT
    parser = build_parser()
    arguments = parser.parse_args(words)
    run = getattr(arguments, "_run", None)
    if run is None:
        parser.print_help(sys.stderr)
        return EXIT_INPUT
    try:
        return int(run(arguments))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone: nothing is wrong, and the interpreter's own flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except Exception as error:
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        return _report(error)


def _report(error: Exception) -> int:
    """Say what failed in words; an InputError lists its faults, anything else is the environment's or a bug."""
    faults = getattr(error, "faults", None)
    if faults is not None:
        print("\n".join(faults), file=sys.stderr)
        return EXIT_INPUT
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fspath(error.filename)}: " if isinstance(error.filename, str | os.PathLike) else ""
        print(f"headrace: {where}{error.strerror}", file=sys.stderr)
    elif type(error).__name__ == "EnvironmentFailed" or isinstance(error, OSError):
        print(f"headrace: {error}", file=sys.stderr)
    else:
        print(f"headrace: {type(error).__name__}: {error} (HEADRACE_DEBUG=1 shows where)", file=sys.stderr)
    return EXIT_ENVIRONMENT


if __name__ == "__main__":
    sys.exit(main())
