"""Compiles modules of a package in place, with mypyc: the step that tests, benchmarks, wheels and images share.

    python build.py JOBS REHEARSAL FILE…   # in a folder that holds the packages; results appear beside the sources

gcc (10 or later) compiles twice: what it makes first counts how often each branch is taken while the package does its
usual work (REHEARSAL, a module that is run; `-`: none), and the second time it knows. Other compilers compile once, and
say so.

Run in a process of its own, because mypyc and setuptools keep state and change folders' contents. Names of files are
relative, and nothing of the folder's own path gets into the result.
Must not know which modules those are.
"""

# ruff: noqa: S603 (runs the compiler and this interpreter)
from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext

GENERATED = Path("c")
# Of mypyc's own library: a slice of bytes whose end lies before its start asks for a negative size, which is a
# SystemError where Python gives b""; and a slice of everything is copied where Python gives the object itself.
SLICE = "        Py_ssize_t slice_len = endn - startn;\n"
MENDED = """\
        if (endn < startn) {
            endn = startn;
        }
        if (startn == 0 && endn == len && PyBytes_CheckExact(obj)) {
            Py_INCREF(obj);
            return obj;
        }
"""
# Functions of one library call each other directly, not by a table that other libraries could change. mypyc's own
# -Werror is for its authors: a warning of a newer compiler is no reason to have no router.
FLAGS = ["-fvisibility=hidden", "-Wno-error"]
COUNTING = ["-fprofile-generate"]
# What wasn't rehearsed is compiled as without a rehearsal, not for size. Every file of the library leaves counts: none,
# or those of other code, are a fault.
COUNTED = [
    "-fprofile-use",
    "-fprofile-partial-training",
    "-Werror=missing-profile",
    "-Werror=coverage-mismatch",
]
HACK = Path(__file__).resolve().parents[1]


class Unmendable(Exception):
    """mypyc's library has changed; the message says where."""


class Unrehearsed(Exception):
    """The rehearsal failed; the message says what would be right."""


def mend(folder: Path) -> None:
    """Give slices of bytes Python's meaning in the copy of mypyc's library in ``folder``.

    Raises:
        Unmendable: what is to be mended isn't there.
    """
    file = folder / "bytes_ops.c"
    text = file.read_text(encoding="utf-8")
    if text.count(SLICE) != 1:
        raise Unmendable(
            f"{file.name}: mypyc slices bytes in another way than is known here; look whether an end before the start "
            "gives b'' (tests/integration/compile), and mend build.py"
        )
    file.write_text(text.replace(SLICE, MENDED + SLICE), encoding="utf-8")


class Rehearsed(build_ext):
    """Compiles the files of one extension at a time, ``jobs`` of them beside each other; the library twice."""

    jobs = 1
    rehearsal = ""  # empty: none

    def build_extensions(self) -> None:
        """Compile and link all."""
        self._beside_each_other()
        compiler: Any = self.compiler
        able = counts(compiler.compiler_so[0])
        if self.rehearsal and not able:
            sys.stderr.write(f"headrace: {compiler.compiler_so[0]} is no gcc >= 10: compiled without a rehearsal\n")
        if not self.rehearsal or not able:
            super().build_extensions()
            return
        (library,) = (extension for extension in self.extensions if extension.name.endswith("__mypyc"))
        usual = list(library.extra_compile_args)
        library.extra_compile_args = [*usual, *COUNTING]
        library.extra_link_args = COUNTING
        super().build_extensions()
        self.copy_extensions_to_source()
        rehearse(self.rehearsal)
        library.extra_compile_args = [*usual, *COUNTED]
        library.extra_link_args = []
        self.extensions = [library]
        self.force = True
        super().build_extensions()

    def _beside_each_other(self) -> None:
        compiler: Any = self.compiler
        one = compiler.compile

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(self.jobs) as pool:
                made = list(pool.map(lambda source: one([source], **options), sources))
            return [file for files in made for file in files]

        compiler.compile = compile_all


def counts(command: str) -> bool:
    """Whether a compiler counts and uses counts as gcc 10 and later do, by whatever name."""
    nothing = ["-fsyntax-only", "-x", "c", os.devnull]
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    tried = subprocess.run([command, *COUNTING, *COUNTED, *nothing], capture_output=True, check=False)
    return "Free Software Foundation" in said.stdout and tried.returncode == 0


def rehearse(module: str) -> None:
    """Run what was compiled here at its usual work, so that the counts lie beside the objects.

    Raises:
        Unrehearsed: it couldn't run.
    """
    # Where counts go must not be told from outside.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GCOV_")}
    env["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), str(HACK), *sys.path[1:]])
    if subprocess.run([sys.executable, "-m", module], env=env, check=False).returncode:
        raise Unrehearsed(
            f"what was compiled doesn't run in {Path.cwd()}, see above; right would be a temporary folder (TMPDIR) "
            "that programs may run from, on the platform that is compiled for"
        )


def build(files: list[str], jobs: int, rehearsal: str) -> None:
    """Compile ``files`` (paths below this folder) in place. rehearsal: a module, or empty."""
    Rehearsed.jobs, Rehearsed.rehearsal = jobs, rehearsal
    extensions: Any = mypycify(
        ["--strict", *files],
        opt_level="3",
        debug_level="0",
        multi_file=True,
        target_dir=str(GENERATED),
        group_name=Path(files[0]).parts[0],
    )
    mend(GENERATED)
    for extension in extensions:
        extension.extra_compile_args += FLAGS
    setup(
        name="compiled",
        packages=[],
        ext_modules=extensions,
        cmdclass={"build_ext": Rehearsed},
        script_args=["-q", "build_ext", "--inplace"],
    )


if __name__ == "__main__":
    try:
        build(sys.argv[3:], int(sys.argv[1]), sys.argv[2].strip("-"))
    except (Unmendable, Unrehearsed) as fault:
        sys.exit(f"headrace: {fault}")
