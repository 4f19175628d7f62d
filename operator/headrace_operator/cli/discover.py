"""``headrace discover``: drafts InferenceEngines from workloads and Services that are there; writes nothing.

Exit codes: 0 drafted (fields to fill are named); 1 nothing there looks like an engine; 3 no cluster, or it refuses.
"""

from __future__ import annotations

import argparse
import sys

from headrace_api.commands import EXIT_DONE, EXIT_NEGATIVE, Command
from headrace_operator.cli.cluster_access import add_cluster_arguments, cluster, namespace_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_cluster_arguments(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all that may be read")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")


def run(arguments: argparse.Namespace) -> int:
    """Read, draft, print."""
    from headrace_operator.cli.discover_draft import drafts
    from headrace_operator.cli.discover_read import read_world
    from headrace_operator.cli.discover_text import as_json, as_yaml

    namespace = "" if arguments.all_namespaces else namespace_of(arguments)
    world = read_world(cluster(arguments), namespace)
    found = drafts(world)
    for note in (*world.notes, *found.notes):
        print(f"note: {note}", file=sys.stderr)
    if not found.engines:
        where = f"namespace {namespace}" if namespace else "any namespace"
        print(f"headrace: nothing in {where} looks like an engine: {found.looked_at}", file=sys.stderr)
        return EXIT_NEGATIVE
    print(as_json(found) if arguments.output == "json" else as_yaml(found), end="")
    return EXIT_DONE


COMMAND = Command(
    help="draft InferenceEngines from what runs in a cluster; writes nothing there",
    add_arguments=add_arguments,
    run=run,
)
