"""Arguments of ``headrace router`` that say where its tables are: files, ConfigMaps, and the API server to ask.

Beside the request path. Must not read a token: that is the router's, whenever it needs one.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Final

from headrace_router.kube.credentials import Credentials, NoCredentials, in_cluster, stated
from headrace_router.tables.tables_from import TablesFrom

_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_CONFIGMAP: Final = re.compile(rf"{_LABEL}/{_LABEL}(\.{_LABEL})*")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument(
        "--table",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="a routing table: a ConfigMap manifest or a table.json; once a policy, need not exist yet",
    )
    parser.add_argument(
        "--configmap",
        metavar="NS/NAME",
        action="append",
        default=[],
        help="a routing table's ConfigMap, watched through the API server; once a policy, need not exist yet",
    )
    parser.add_argument(
        "--fallback-dir",
        metavar="DIR",
        type=Path,
        help="where ConfigMaps are mounted as DIR/NS/NAME, for when the API server can't be asked",
    )
    parser.add_argument("--api", metavar="URL", help="the API server (default: this pod's)")
    parser.add_argument(
        "--api-token", metavar="FILE", type=Path, help="with --api: the token, read again as it changes"
    )
    parser.add_argument("--api-ca", metavar="FILE", type=Path, help="with --api: its certificate authority")


def read_table_arguments(arguments: argparse.Namespace, faults: list[str]) -> TablesFrom:
    """Where tables come from; what is wrong is added to ``faults``."""
    files, named = arguments.table, arguments.configmap
    faults += [f"--table {path}: is a directory; right would be a file" for path in files if path.is_dir()]
    faults += [
        f"--configmap {text}: not a ConfigMap; right would be NAMESPACE/NAME, such as inference/headrace-chat-fe-a"
        for text in named
        if not _CONFIGMAP.fullmatch(text)
    ]
    if len(set(files)) < len(files):
        faults.append("--table: the same file stands twice")
    if len(set(named)) < len(named):
        faults.append("--configmap: the same ConfigMap stands twice")
    if not files and not named:
        faults.append("no table: right would be --configmap NAMESPACE/NAME, or --table FILE")
    if arguments.fallback_dir is not None and not named:
        faults.append("--fallback-dir: has a meaning only beside --configmap")
    if arguments.api is None and (arguments.api_token is not None or arguments.api_ca is not None):
        faults.append("--api-token and --api-ca: have a meaning only beside --api")
    if faults:
        return TablesFrom()
    configmaps = tuple((namespace, name) for namespace, _, name in (text.partition("/") for text in named))
    credentials, missing = _credentials(arguments, faults)
    return TablesFrom(tuple(files), configmaps, arguments.fallback_dir, credentials, missing)


def _credentials(arguments: argparse.Namespace, faults: list[str]) -> tuple[Credentials | None, str | None]:
    """Who we are to the API server, or why there is none to be asked."""
    try:
        if arguments.api is not None:
            return stated(arguments.api, arguments.api_token, arguments.api_ca), None
        return in_cluster(os.environ), None
    except NoCredentials as error:
        if arguments.api is not None:
            faults.append(f"--api: {error}")
        elif arguments.configmap and arguments.fallback_dir is None:
            faults.append(f"--configmap: {error}; right would be --api URL, or --fallback-dir")
        return None, str(error)
