#!/usr/bin/env python3
"""The router with its hot modules compiled by mypyc: makes it once per content, says where it is.

    python hack/compile/compiled.py              # prints a folder; first on PYTHONPATH it is headrace_router, compiled
    python hack/compile/compiled.py --jobs 1

The folder holds the whole package, sources included; it lies in the user's cache under what it is made of.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "headrace_router"
SOURCE = ROOT / "router" / PACKAGE
BESIDE = ROOT / "crds" / "headrace_api"  # typed, read by the compiler, not compiled
LIST = Path(__file__).with_name("modules.txt")
SETUP = """\
import sys
from mypyc.build import mypycify
from setuptools import setup

setup(
    name="compiled",
    packages=[],
    ext_modules=mypycify(["--strict", *sys.argv.pop().split()], opt_level="3", debug_level="0", multi_file=True),
)
"""


def modules() -> list[str]:
    """Files to compile, relative to the source root."""
    found = []
    for line in LIST.read_text().splitlines():
        pattern = line.partition("#")[0].strip()
        if pattern.startswith("!"):
            found = [file for file in found if file != f"{PACKAGE}/{pattern[1:].strip()}"]
        elif pattern:
            files = sorted(SOURCE.glob(pattern))
            if not files:
                raise SystemExit(f"{LIST.name}: nothing is called {pattern}")
            found += [f"{PACKAGE}/{file.relative_to(SOURCE)}" for file in files if file.name != "__init__.py"]
    return found


def key() -> str:
    """What the result depends on."""
    digest = hashlib.sha256()
    import mypy.version

    digest.update(f"{sys.version} {sysconfig.get_platform()} {mypy.version.__version__} {SETUP}".encode())
    for file in [LIST, *sorted(SOURCE.rglob("*.py")), *sorted(BESIDE.rglob("*.py"))]:
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


def make(folder: Path, jobs: int) -> None:
    """Compile into ``folder``, which is there afterwards or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compile-", dir=folder.parent) as place:
        build = Path(place) / "build"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE, build / PACKAGE, ignore=ignore)
        shutil.copytree(BESIDE, build / BESIDE.name, ignore=ignore)
        (build / "setup.py").write_text(SETUP)
        command = [
            sys.executable,
            "setup.py",
            "-q",
            "build_ext",
            "--inplace",
            f"--parallel={jobs}",
            " ".join(modules()),
        ]
        run = subprocess.run(command, cwd=build, env={**os.environ, "MYPYPATH": str(build)}, check=False)  # noqa: S603
        if run.returncode:
            raise SystemExit("the router could not be compiled")
        shutil.rmtree(build / BESIDE.name)
        for leave in ("build", ".mypy_cache", "setup.py"):
            path = build / leave
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        os.rename(build, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "compiled"
    folder = cache / key()
    if not folder.is_dir():
        print("compiling the router, a minute or two", file=sys.stderr)
        make(folder, given.jobs)
    print(folder)


if __name__ == "__main__":
    main()
