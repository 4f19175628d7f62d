"""``headrace freeze POLICY``, ``drain ENGINE`` and ``resume NAME``: break-glass, for a day at most, with a reason.

Exit codes: 0 done; 2 the input is wrong (a time that is over, no such policy); 3 no cluster, or it refuses. A resource
that is not held can be resumed: nothing is done, and that is said.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from headrace_api.commands import EXIT_DONE, Command, EnvironmentFailed, InputError
from headrace_api.names import ANNOTATION_DRAIN_UNTIL, ANNOTATION_FREEZE_UNTIL, ANNOTATION_WHY
from headrace_operator.cli.cluster_access import add_cluster_arguments, cluster, namespace_of

if TYPE_CHECKING:
    from headrace_operator.cli.break_glass import BreakGlassReport
    from headrace_operator.kube.client import KubeClient


def _add_hold_arguments(name: str, meaning: str) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar=name, help=meaning)
        parser.add_argument("--until", metavar="T", required=True, help="2h, or 2026-01-31T12:00:00Z; at most 24h")
        parser.add_argument("--why", metavar="TEXT", required=True, help="shown in status, history and Events")
        _add_common(parser)

    return add


def _add_resume_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a policy or an engine; rpol/NAME or ieng/NAME names the kind")
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_cluster_arguments(parser)
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")


def _freeze(arguments: argparse.Namespace) -> int:
    return _hold("freeze", arguments)


def _drain(arguments: argparse.Namespace) -> int:
    return _hold("drain", arguments)


def _hold(action: Literal["freeze", "drain"], arguments: argparse.Namespace) -> int:
    from headrace_operator.cli.break_glass import ENGINE, POLICY, hold, read_name, read_until, read_why

    now = time.time()
    faults: list[str] = []

    def right(read: Callable[[], str]) -> str:
        try:
            return read()
        except ValueError as fault:
            faults.append(str(fault))
            return ""

    name = right(lambda: read_name(arguments.name, (POLICY if action == "freeze" else ENGINE,))[1])
    until = right(lambda: read_until(arguments.until, now))
    why = right(lambda: read_why(arguments.why))
    if faults:
        raise InputError(faults)
    annotation = ANNOTATION_FREEZE_UNTIL if action == "freeze" else ANNOTATION_DRAIN_UNTIL
    client = _cluster(arguments, f"annotations {annotation}: {until} and {ANNOTATION_WHY}: {why}")
    return _print(hold(client, action, namespace_of(arguments), name, until, why, now), arguments.output, now)


def _resume(arguments: argparse.Namespace) -> int:
    from headrace_operator.cli.break_glass import TARGETS, read_name, resume

    now = time.time()
    try:
        targets, name = read_name(arguments.name, TARGETS)
    except ValueError as fault:
        raise InputError([str(fault)]) from None
    client = _cluster(arguments, f"taking {ANNOTATION_FREEZE_UNTIL} or {ANNOTATION_DRAIN_UNTIL} out")
    return _print(resume(client, targets, namespace_of(arguments), name, now), arguments.output, now)


def _cluster(arguments: argparse.Namespace, instead: str) -> KubeClient:
    try:
        return cluster(arguments)
    except EnvironmentFailed as failure:
        raise EnvironmentFailed(
            f"{failure}. With run --standalone the same is done in the manifest: {instead}"
        ) from None


def _print(report: BreakGlassReport, output: str, now: float) -> int:
    import msgspec

    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif output == "yaml":
        from headrace_operator.publisher.configmap import dump

        print(dump(msgspec.to_builtins(report)).decode(), end="")
    else:
        from headrace_operator.cli.break_glass_text import report_lines
        from headrace_operator.cli.output import style_for

        print("\n".join(report_lines(report, now, style_for(sys.stdout))))
    return EXIT_DONE


FREEZE = Command(
    help="hold a policy's weights as they are, for a while",
    add_arguments=_add_hold_arguments("POLICY", "a policy"),
    run=_freeze,
)
DRAIN = Command(
    help="send an engine nothing new, for a while", add_arguments=_add_hold_arguments("ENGINE", "an engine"), run=_drain
)
RESUME = Command(help="end a freeze or a drain", add_arguments=_add_resume_arguments, run=_resume)
