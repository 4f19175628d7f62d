"""The previous release's programs, out of this repository's history, run with the packages that are installed now.

What counts as previous: the newest tag before this commit, while there is none the last state before the operator and
routers came into clusters.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BEFORE_THE_FIRST_RELEASE: Final = "95fa46474f0e9bc27b3022cb8460cf174ed830f6"
FOLDERS: Final = ("crds", "operator", "router")


class Unavailable(Exception):
    """The previous release can't be had from this checkout; the message says what is missing."""


def revision() -> str:
    """The tag or commit.

    Raises:
        Unavailable: this is no repository, or its history doesn't go back that far.
    """
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    found = tag.stdout.decode().strip() if tag.returncode == 0 else BEFORE_THE_FIRST_RELEASE
    if _git("cat-file", "-e", f"{found}^{{commit}}").returncode != 0:
        raise Unavailable(
            f"{ROOT} does not hold {found}, the previous release; right would be a clone with its whole history "
            "and tags (git fetch --unshallow --tags)"
        )
    return found


def environment(target: Path) -> dict[str, str]:
    """The environment in which ``python -m headrace_cli.main`` is the previous release's; its files go to ``target``.

    Raises:
        Unavailable: see revision.
    """
    packed = _git("archive", "--format=tar", revision(), *FOLDERS)
    if packed.returncode != 0:
        raise Unavailable(f"git archive: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(target, filter="data")
    found = os.environ | {"PYTHONPATH": os.pathsep.join(str(target / folder) for folder in FOLDERS)}
    ask = "import headrace_api, headrace_cli, headrace_operator, headrace_router as r; print(r.__file__)"
    told = subprocess.run([sys.executable, "-c", ask], env=found, capture_output=True, check=False)
    if not told.stdout.decode().startswith(str(target)):
        raise Unavailable(f"{target} is not what Python finds: {told.stdout.decode()}{told.stderr.decode()}")
    return found


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
