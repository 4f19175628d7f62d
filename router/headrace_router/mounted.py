"""Reads small files that are replaced while the router runs: keys and certificates out of Secrets and ConfigMaps.

Beside every path; blocks, so it is called in threads. Compares contents, never times (the kubelet swaps a link, people
write in place), and believes what two reads in a row agree on. Must never put a file's content into a message.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

# Seconds between two reads that are to agree, and how often they may differ: somebody writes just now.
SETTLE: Final = 0.02
TRIES: Final = 5
MAX_FILES: Final = 10_000

T = TypeVar("T")


class Unusable(Exception):
    """What stands in a file is no use; the text is one line, names the file, and holds nothing of its content."""


def read_file(path: Path, most: int) -> bytes | None:
    """A file's content; None: there is no such file.

    Raises:
        Unusable: it can't be read, or is larger than ``most`` bytes.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unusable(f"{path} can't be read: {error.strerror or type(error).__name__}") from error
    if len(raw) > most:
        raise Unusable(f"{path} is larger than {most} bytes")
    return raw


def settled(read: Callable[[], T]) -> T:
    """What two reads in a row agree on; the last one if none do."""
    before = read()
    for _ in range(TRIES):
        time.sleep(SETTLE)
        again = read()
        if again == before:
            break
        before = again
    return before


def entries(folder: Path) -> Iterator[Path]:
    """What is in a folder, sorted, without what the kubelet keeps there for itself (``..data``); nothing if it is none.

    Raises:
        Unusable: it can't be read, or holds too much.
    """
    try:
        found = sorted(each for each in folder.iterdir() if not each.name.startswith(".."))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise Unusable(f"{folder} can't be read: {error.strerror or type(error).__name__}") from error
    if len(found) > MAX_FILES:
        raise Unusable(f"{folder} holds more than {MAX_FILES} files")
    yield from found


class Reread(ABC, Generic[T]):
    """What is made of files that change: the last that was of use stays. ``check`` runs in a thread, one at a time.

    error: what is wrong with what stands in the files now.
    """

    def __init__(self) -> None:
        self.error: str | None = None
        self._raw: T | None = None

    def check(self) -> bool:
        """Read the files; blocks. Returns whether something else is in use than before.

        Raises:
            Unusable: what stands there now is no use, and this is new.
        """
        try:
            raw = settled(self._read)
            if raw == self._raw and self.error is None:
                return False
            changed = self._take(raw)
        except Unusable as error:
            self._raw = None
            if self.error == str(error):
                return False
            self.error = str(error)
            raise
        self.error = None
        self._raw = raw
        return changed

    @abstractmethod
    def _read(self) -> T:
        """What stands in the files, or raises Unusable."""

    @abstractmethod
    def _take(self, raw: T) -> bool:
        """Use it from now on, or raise Unusable; returns whether it means something else than what was in use."""
