"""``headrace explain POLICY``: why this weight, why engine A and not B, and what one more replica or request changes.

Explains a plan of manifests (-f), or what an operator published (--state, --at REVISION) by deciding again from its
record. Exit codes: 0 done; 2 the input is wrong; 3 there is no answer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_api.commands import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_INPUT, Command, InputError
from headrace_operator.cli.plan import add_input_arguments

if TYPE_CHECKING:
    from headrace_operator.cli.explaining import Explained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("policy", metavar="POLICY", help="NAME or NAMESPACE/NAME")
    parser.add_argument("--frontend", metavar="F", help="only this front-end; also: one more request/s there")
    parser.add_argument("--engine", metavar="E", help="only this engine; also: one more replica, and it gone")
    add_input_arguments(parser, required=False)
    parser.add_argument("--previous", metavar="DIR|FILE", type=Path, help="tables that stand, with -f")
    parser.add_argument("--state", metavar="DIR", type=Path, help="an operator's state: explain what it published")
    parser.add_argument("--at", metavar="REVISION", type=int, help="with --state: this publication, not the last")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """Explain and print."""
    from headrace_operator.cli.explaining import from_manifests, from_state

    if (arguments.files is None) == (arguments.state is None):
        raise InputError(["explain: right would be either -f MANIFESTS or --state DIR"])
    if arguments.state is not None:
        given = {"--signals": arguments.signals, "--previous": arguments.previous, "--set": arguments.changes}
        ignored = [name for name, value in given.items() if value]
        if ignored:
            raise InputError([f"{', '.join(ignored)}: of no effect on what was published; right would be -f MANIFESTS"])
    if arguments.at is not None and arguments.state is None:
        raise InputError(["--at: a revision of what was published; right would be --state DIR with it"])
    if arguments.state is not None:
        explained = from_state(arguments.state, arguments.at, arguments.policy, arguments.namespace)
    else:
        explained = from_manifests(arguments)
    faults = explained.faults
    print("".join(f"{fault}\n" for fault in faults), end="", file=sys.stderr)
    _print(explained, arguments)
    if faults:
        return EXIT_INPUT
    return EXIT_ENVIRONMENT if explained.book.solution.status == "Failed" else EXIT_DONE


def _print(explained: Explained, arguments: argparse.Namespace) -> None:
    from headrace_operator.cli.explaining import explanation
    from headrace_operator.cli.output import style_for

    told = explanation(explained, arguments.frontend, arguments.engine)
    if arguments.output == "text":
        from headrace_operator.cli.explain_text import explain_lines

        print("\n".join(explain_lines(told, style_for(sys.stdout))))
        return
    import msgspec

    if arguments.output == "json":
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        from headrace_operator.publisher.configmap import dump

        print(dump(msgspec.to_builtins(told)).decode(), end="")


COMMAND = Command(
    help="why a policy's weights are what they are, and what one more replica or request would change",
    add_arguments=add_arguments,
    run=run,
)
