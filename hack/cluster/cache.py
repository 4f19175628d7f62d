"""Built parts of the test cluster and of tests, kept in the user's cache folder under a hash of what they are made of.

A part is made once however many runs ask for it at the same time, and is whole or absent: it is built beside its place
and renamed into it. Of each part the few that were used last are kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT = 3  # of each part
IN_USE = 900.0  # a run may be reading it


def folder() -> Path:
    """``$XDG_CACHE_HOME/headrace/cluster``, made if need be."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(home) / "headrace" / "cluster"
    made.mkdir(parents=True, exist_ok=True)
    return made


def content_hash(inputs: Iterable[Path], *more: str) -> str:
    """Hash of the machine's kind, of ``more``, and of the names and contents of all files in ``inputs`` and below."""
    digest = hashlib.sha256(platform.machine().encode())
    for text in more:
        digest.update(b"\0" + text.encode())
    for path in inputs:
        below = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        files = below if path.is_dir() else [path]
        for file in files:
            name = file.relative_to(path.parent).as_posix()
            digest.update(f"\0{name}\0{file.stat().st_mode & 0o111}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``; the kernel lets go of it when the holder dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def part(name: str, key: str, build: Callable[[Path], None], *, in_use: float = IN_USE) -> Path:
    """The folder of part ``name`` for ``key``. If there is none, ``build`` fills the one that it is given.

    in_use: seconds after its last use for which it is kept in any case.
    """
    place = folder() / f"{name}-{key}"
    with locked(folder() / f"{name}.lock"):
        if not place.exists():
            sys.stderr.write(f"headrace: building {name}\n")
            started = time.monotonic()
            unfinished = folder() / f"{name}.part"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(place)
            _prune(name, in_use)
            sys.stderr.write(f"headrace: {name} built in {time.monotonic() - started:.0f} s\n")
        os.utime(place)
    return place


def _prune(name: str, in_use: float) -> None:
    by_use = sorted(folder().glob(f"{name}-*"), key=lambda place: place.stat().st_mtime, reverse=True)
    for place in by_use[KEPT:]:
        if time.time() - place.stat().st_mtime > in_use:
            shutil.rmtree(place, ignore_errors=True)
