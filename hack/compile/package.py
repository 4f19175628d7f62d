"""The package with its hot modules compiled: which they are, what it takes, and how it is put into a folder.

For wheels (wheel_hook.py), images (hack/cluster/steps/compile.sh) and, with a cache around it, tests and benchmarks
(compiled.py). Standard library alone: it is there before any tool is.

    python hack/compile/package.py FOLDER JOBS        # FOLDER is there, and empty
"""

# ruff: noqa: S603, S607 (runs this interpreter, the compiler, and apt-get)
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = "headrace_router"
SOURCE = ROOT / "router" / PACKAGE
BESIDE = ROOT / "crds" / "headrace_api"  # its types are read; it isn't compiled
LIST = HERE / "modules.txt"
STEP = HERE / "build.py"
REHEARSAL = "compile.rehearsal"
TOOLS = ("mypy", "setuptools")


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


def need(*, install: bool) -> None:
    """Have a C compiler and Python's headers. ``install``: as root on Debian, what is missing.

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
    lacks = f"no C compiler or no headers of Python: install {' '.join(packages)}"
    if not install:
        raise Unable(lacks)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unable(f"{lacks}, or run as root on Debian")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        if subprocess.run(["apt-get", "-qq", *step], stdout=2, env=quiet, check=False).returncode:
            raise Unable(f"{lacks}; apt-get {step[0]} failed, see above")


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def compiler() -> str:
    """The C compiler that Python's own extensions are made with."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def make(folder: Path, jobs: int, *, install: bool = True, copied: Callable[[Path], None] = lambda _: None) -> None:
    """Put the package into ``folder`` (it is there, and empty), compiled. ``install``: see ``need``.

    copied: told of the folder with the copies of SOURCE and BESIDE that it is made from.

    Raises:
        Unable: a tool is missing, or it couldn't be compiled.
    """
    need(install=install)
    with tempfile.TemporaryDirectory(prefix="headrace-compile-") as name:
        place = Path(name)
        for tree in (SOURCE, BESIDE):
            shutil.copytree(tree, place / tree.name, ignore=shutil.ignore_patterns("__pycache__"))
        copied(place)
        # The order of sets, or nothing would be the same twice.
        env = {**os.environ, "PYTHONHASHSEED": "0", "MYPYPATH": name}
        command = [sys.executable, str(STEP), str(jobs), REHEARSAL, *modules()]
        if subprocess.run(command, cwd=place, env=env, stdout=2, check=False).returncode:
            raise Unable("the router could not be compiled, see above")
        for made in (place / PACKAGE, *place.glob("*__mypyc*")):
            shutil.move(made, folder / made.name)


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]), int(sys.argv[2]))
    except Unable as error:
        sys.exit(f"headrace: {error}")
