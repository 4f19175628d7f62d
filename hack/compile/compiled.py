#!/usr/bin/env python3
"""The router with its hot modules compiled (docs/adr/0021): made once per content, kept in the user's cache.

    python hack/compile/compiled.py          # prints a folder: first on PYTHONPATH, it is headrace_router in that form
    python hack/compile/compiled.py --jobs 1

The folder holds the whole package, sources included, so that every import finds what it finds in the checkout. Which
modules are compiled stands in modules.txt. Any number of callers at a time get one result; it is whole or absent.
"""

# ruff: noqa: S603 (runs the compiler)
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import package

sys.path.insert(0, str(package.ROOT / "hack" / "cluster"))
import cache

IN_USE = 6 * 3600.0  # seconds that a result is kept after its last use: a long test may import from it
EXIT_ENVIRONMENT = 3


def made_by() -> str:
    """Hash of the tools and steps that make the result."""
    said = subprocess.run([package.compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    by = [sys.version, said, *(f"{name} {version(name)}" for name in package.TOOLS)]
    by += [os.environ.get("CFLAGS", ""), str(sysconfig.get_config_var("EXT_SUFFIX"))]
    # The versions of what is imported: its types are read too.
    locked = package.ROOT / "requirements" / "router.txt"
    return cache.content_hash([package.HERE, locked], *by)


def key(by: str, source: Path = package.SOURCE, beside: Path = package.BESIDE) -> str:
    """Hash of what the result is made from and by. by: see ``made_by``. source, beside: or copies of them."""
    return cache.content_hash([source, beside], by)


def compiled(jobs: int) -> Path:
    """The folder that holds the compiled package.

    Raises:
        Unable: this machine can't compile it, or somebody edits what it is made from or by.
    """
    package.need(install=True)
    by = made_by()
    wanted = key(by)

    def made(place: Path) -> None:
        # Others' results may have been made first, for minutes, while somebody edits.
        package.make(place, jobs, copied=lambda copies: _same(wanted, key(by, *_trees(copies)), "the router's source"))
        # The steps run from where they stand, all along.
        _same(by, made_by(), "how it is compiled (hack/compile, the compiler or its settings)")

    return cache.part("router-compiled", wanted, made, in_use=IN_USE)


def _trees(copies: Path) -> tuple[Path, Path]:
    return copies / package.SOURCE.name, copies / package.BESIDE.name


def _same(before: str, now: str, what: str) -> None:
    if now != before:
        raise package.Unable(f"{what} changed after this had begun; right would be to run it again")


def main() -> int:
    parser = argparse.ArgumentParser(description="Print a folder that holds the router, its hot modules compiled.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="files compiled at a time")
    given = parser.parse_args()
    try:
        sys.stdout.write(f"{compiled(given.jobs)}\n")
    except package.Unable as error:
        sys.stderr.write(f"headrace: {error}\n")
        return EXIT_ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())
