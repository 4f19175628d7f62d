"""Where a router's tables are, as its command line says: plain values.

Beside the request path. Must import nothing heavy: the command line is read before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace_router.kube.credentials import Credentials


@dataclass(frozen=True, slots=True)
class TablesFrom:
    """Where tables are.

    files: table files. configmaps: (namespace, name). fallback: a folder in which ConfigMaps are mounted as
    NAMESPACE/NAME. api: who we are to the API server; None: there is none, and ``no_api`` says why.
    """

    files: Sequence[Path] = ()
    configmaps: Sequence[tuple[str, str]] = ()
    fallback: Path | None = None
    api: Credentials | None = None
    no_api: str | None = None
