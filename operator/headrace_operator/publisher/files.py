"""Files that are whole or not there: written beside their place, synced, renamed, and the directory synced.

On the routing-weight path. A reader at any moment, also after a crash or a power cut, finds the old file or the new one
and never a part. Temporary names start with a dot and are left out by every reader here.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace the file's content. sync: wait until it stands on the disk (a heartbeat need not).

    Raises:
        OSError: the old content stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            if sync:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    if sync:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in a directory last."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file for good; one that is not there is fine."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def sweep_temporaries(directory: Path) -> None:
    """Remove what a killed writer left behind."""
    for path in directory.glob(".*.*"):
        if path.is_file() and path.name != ".lock":
            with contextlib.suppress(OSError):
                path.unlink()


class Signature:
    """Whether a file is still the one that was written, by its inode, size and times; cheap enough for each tick."""

    def __init__(self, path: Path) -> None:
        self._seen = self._of(path)

    @staticmethod
    def _of(path: Path) -> tuple[int, int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def holds(self, path: Path) -> bool:
        """True while nobody replaced, changed or removed the file."""
        return self._seen is not None and self._of(path) == self._seen
