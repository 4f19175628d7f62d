"""``headrace plan``: one solve of a directory of manifests, no cluster, nothing published.

The check of a Git pull request and the first thing a newcomer runs. Faults go to stderr, all of them, and what is good
beside them is still planned. Exit codes: 0 done; 1 a check failed (--fail-on-shed, --max-…, --min-headroom); 2 the
input is wrong; 3 there is no answer.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace_api.commands import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_INPUT, EXIT_NEGATIVE, Command, InputError

if TYPE_CHECKING:
    from headrace_api.table import RoutingTable
    from headrace_operator.cli.planning import Plan


NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MAX_NAMESPACE: Final = 63


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_input_arguments(parser)
    parser.add_argument("--previous", metavar="DIR|FILE", type=Path, help="tables that stand: what would change")
    parser.add_argument("--base", metavar="GITREV", help="compare with the manifests of a Git revision")
    parser.add_argument("--tables", metavar="DIR", type=Path, help="write the tables as ConfigMap manifests there")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    parser.add_argument("--fail-on-shed", action="store_true", help="exit 1 when demand is refused")
    parser.add_argument("--max-shed", metavar="P", type=_percent, help="exit 1 when more than P %% is refused")
    parser.add_argument(
        "--max-shift", metavar="P", type=_percent, help="exit 1 when a front-end's weights move by > P %%"
    )
    parser.add_argument(
        "--min-headroom", metavar="P", type=_percent, help="exit 1 when less than P %% capacity is left"
    )


def add_input_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What plan and explain read alike."""
    parser.add_argument(
        "-f", dest="files", metavar="FILE|DIR|-", action="append", required=required, help="manifests; may be repeated"
    )
    parser.add_argument("-n", "--namespace", default="default", type=_namespace, help="of manifests that name none")
    parser.add_argument("--signals", metavar="FILE", help="what was measured: demand, round trips, replicas, health")
    parser.add_argument(
        "--set", dest="changes", metavar="[NAME:]PATH=VALUE", action="append", default=[], help="what if, in a spec"
    )


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}; right would be a number from 0 to 100")
    return value


def _namespace(text: str) -> str:
    if not NAMESPACE.fullmatch(text) or len(text) > MAX_NAMESPACE:
        raise argparse.ArgumentTypeError(
            f"{text!r}; right would be a namespace: at most {MAX_NAMESPACE} of a-z, 0-9 and - between them"
        )
    return text


def run(arguments: argparse.Namespace) -> int:
    """Plan, print, check."""
    from headrace_operator.cli.inputs import read_inputs, read_previous
    from headrace_operator.cli.planning import base_plan, compared_with, make_plan

    if arguments.max_shift is not None and arguments.previous is None and arguments.base is None:
        raise InputError(["--max-shift: nothing to compare with; right would be --previous DIR or --base GITREV too"])
    inputs = read_inputs(arguments.files, arguments.namespace, arguments.signals, arguments.changes)
    faults = list(inputs.faults)
    previous: tuple[RoutingTable, ...] = ()
    if arguments.previous is not None:
        previous, wrong = read_previous(arguments.previous)
        faults += wrong
    plan = make_plan(inputs, previous)
    if arguments.base is not None:
        base = base_plan(arguments.base, arguments.files, arguments.namespace, arguments.signals, inputs.at)
        plan = compared_with(plan, base)
    faults += plan.refused
    print("".join(f"{fault}\n" for fault in (*inputs.notices, *faults)), end="", file=sys.stderr)
    _print(plan, arguments.output, compared=arguments.previous is not None or arguments.base is not None)
    failed = _written(plan, arguments.tables)
    negative = _checks(plan, arguments)
    if faults:
        return EXIT_INPUT
    if failed or plan.report.solver.status == "Failed":
        return EXIT_ENVIRONMENT
    return EXIT_NEGATIVE if negative else EXIT_DONE


def _print(plan: Plan, output: str, *, compared: bool) -> None:
    import msgspec

    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(plan.report), indent=2).decode())
    elif output == "yaml":
        from headrace_operator.publisher.configmap import dump

        print(dump(msgspec.to_builtins(plan.report)).decode(), end="")
    else:
        from headrace_operator.cli.output import style_for
        from headrace_operator.cli.plan_text import plan_lines

        print("\n".join(plan_lines(plan.report, style_for(sys.stdout), compared=compared)))


def _written(plan: Plan, directory: Path | None) -> bool:
    """Write the tables where asked; True when one can't be written."""
    for fault in plan.too_large:
        print(f"headrace: {fault.policy}: {fault.message}", file=sys.stderr)
    if directory is None:
        return bool(plan.too_large)
    from headrace_operator.publisher.configmap import configmap_manifest
    from headrace_operator.publisher.files import write_atomically

    for name, table in plan.tables:
        path = directory / table.policy_namespace / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, configmap_manifest(table, name))
    return bool(plan.too_large)


def _checks(plan: Plan, arguments: argparse.Namespace) -> bool:
    """Say which checks failed; True when one did."""
    from headrace_operator.cli.planning import failed_checks

    failures = failed_checks(
        plan.report,
        fail_on_shed=arguments.fail_on_shed,
        max_shed=arguments.max_shed,
        max_shift=arguments.max_shift,
        min_headroom=arguments.min_headroom,
    )
    for failure in failures:
        print(f"headrace: {failure}", file=sys.stderr)
    return bool(failures)


COMMAND = Command(
    help="solve manifests once and say which weights they give, and why; nothing is published",
    add_arguments=add_arguments,
    run=run,
)
