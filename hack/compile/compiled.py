#!/usr/bin/env python3
"""The router with its hot modules compiled (docs/adr/0021): made once per content, kept in the user's cache.

    python hack/compile/compiled.py          # prints a folder: first on PYTHONPATH, it is headrace_router in that form
    python hack/compile/compiled.py --jobs 1

The folder holds the whole package, sources included, so that every import finds what it finds in the checkout. Which
modules are compiled stands in modules.txt. Any number of callers at a time get one result; it is whole or absent.
"""

# ruff: noqa: S603, S607 (runs this interpreter, the compiler, and apt-get)
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "hack" / "cluster"))
import cache  # noqa: E402

PACKAGE = "headrace_router"
SOURCE = ROOT / "router" / PACKAGE
BESIDE = ROOT / "crds" / "headrace_api"  # its types are read; it isn't compiled
LIST = HERE / "modules.txt"
STEP = HERE / "build.py"
TOOLS = ("mypy", "setuptools")
IN_USE = 6 * 3600.0  # seconds that a result is kept after its last use: a long test may import from it
EXIT_ENVIRONMENT = 3


class Unable(Exception):
    """This machine can't compile; the message says what would be needed."""


def modules() -> list[str]:
    """Files to compile, below the folder that holds the package.

    Raises:
        Unable: a line of the list matches nothing.
    """
    found: list[str] = []
    lines = [line.partition("#")[0].strip() for line in LIST.read_text(encoding="utf-8").splitlines()]
    for line in filter(None, lines):
        pattern = line.removeprefix("!").strip()
        files = [f"{PACKAGE}/{file.relative_to(SOURCE)}" for file in sorted(SOURCE.glob(pattern))]
        if not files:
            raise Unable(f"{LIST.name}: no file below {SOURCE.name} is called {pattern}")
        if line.startswith("!"):
            found = [file for file in found if file not in files]
        else:
            found += [file for file in files if not file.endswith("/__init__.py")]
    return found


def need() -> None:
    """Have a C compiler and Python's headers; as root on Debian they are installed.

    Raises:
        Unable: they are missing, or mypy or setuptools are.
    """
    lacking = [name for name in TOOLS if not _installed(name)]
    if lacking:
        raise Unable(
            f"{sys.executable} has no {' and no '.join(lacking)}; `make dev` makes an environment that has both"
        )
    packages = []
    if not shutil.which(compiler()):
        packages += ["gcc", "libc6-dev"]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        packages.append(f"python{sys.version_info.major}.{sys.version_info.minor}-dev")
    if not packages:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unable(f"no C compiler or no headers of Python: install {' '.join(packages)}, or run as root on Debian")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", "update"], check=True, stdout=2, env=quiet)
    install = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *packages]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, env=quiet)


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def compiler() -> str:
    """The C compiler that Python's own extensions are made with."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def key() -> str:
    """Hash of what the result is made from and by."""
    said = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    by = [sys.version, said, *(f"{name} {version(name)}" for name in TOOLS)]
    by += [os.environ.get("CFLAGS", ""), sysconfig.get_config_var("EXT_SUFFIX")]
    # The versions of what is imported: its types are read too.
    locked = ROOT / "requirements" / "router.txt"
    return cache.content_hash([LIST, STEP, locked, SOURCE, BESIDE], *by)


def make(folder: Path, jobs: int) -> None:
    """Put the package into ``folder`` (it is there, and empty), compiled.

    Raises:
        Unable: a tool is missing, or it couldn't be compiled.
    """
    need()
    with tempfile.TemporaryDirectory(prefix="headrace-compile-") as name:
        place = Path(name)
        for tree in (SOURCE, BESIDE):
            shutil.copytree(tree, place / tree.name, ignore=shutil.ignore_patterns("__pycache__"))
        # The order of sets, or nothing would be the same twice.
        env = {**os.environ, "PYTHONHASHSEED": "0", "MYPYPATH": name}
        command = [sys.executable, str(STEP), str(jobs), *modules()]
        if subprocess.run(command, cwd=place, env=env, stdout=2, check=False).returncode:
            raise Unable("the router could not be compiled, see above")
        for made in (place / PACKAGE, *place.glob("*__mypyc*")):
            shutil.move(made, folder / made.name)


def compiled(jobs: int) -> Path:
    """The folder that holds the compiled package."""
    need()
    return cache.part("router-compiled", key(), lambda place: make(place, jobs), in_use=IN_USE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print a folder that holds the router, its hot modules compiled.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="files compiled at a time")
    given = parser.parse_args()
    try:
        sys.stdout.write(f"{compiled(given.jobs)}\n")
    except Unable as error:
        sys.stderr.write(f"headrace: {error}\n")
        return EXIT_ENVIRONMENT
    return 0


if __name__ == "__main__":
    sys.exit(main())
