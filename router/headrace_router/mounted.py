"""Reads small files that are replaced while the router runs: keys and certificates out of Secrets and ConfigMaps.

Beside every path; blocks, so it is called in threads. Compares contents, never times (the kubelet swaps a link, people
write in place), and believes what two reads in a row agree on. Must never put a file's content into a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

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
