"""Reads a table file whole: a ConfigMap manifest with the key ``table.json``, or a bare table.json.

On the routing-weight path. Compares contents, never times or sizes (kubelet swaps links, editors write in place, two
writes fit in one clock tick); a vanished file keeps what was read before. Must not judge a table: the core does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from headrace_api.table import MAX_TABLE_BYTES, TABLE_KEY
from headrace_router.tables.table_source import Content, Missing, Read, Same, Unreadable

# A manifest quotes the table: escapes can double it, its own fields are small.
MAX_FILE_BYTES: Final = 2 * MAX_TABLE_BYTES + 65_536
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TableFile:
    """One table file and what was last read from it. One thread at a time may call ``read``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: bytes | None = None

    def read(self) -> Read:
        """The table's bytes if the file's content changed since the last read."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            self._last = None
            return Missing(f"{self.path} does not exist")
        except OSError as error:
            self._last = None
            return Missing(f"{self.path} can't be read: {error.strerror or error}")
        if raw == self._last:
            return Same()
        self._last = raw
        if len(raw) > MAX_FILE_BYTES:
            return Unreadable(f"{self.path} is larger than {MAX_FILE_BYTES} bytes")
        if self.path.suffix not in (".yaml", ".yml"):
            return Content(raw)
        return _from_manifest(self.path, raw)


class FileSource:
    """A table file as a TableSource."""

    whole = False
    namespace = None
    way = "file"
    trouble = None

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.label = path.name
        self.folders = (path.absolute().parent,)
        self._file = TableFile(path)

    async def read(self) -> Read:
        """See TableSource."""
        return await asyncio.to_thread(self._file.read)

    def pass_over(self) -> None:
        """What stands there in this moment says nothing new, only what comes after it. Reads the file at once: a turn
        later it may have changed."""
        self._file.read()

    async def follow(self, changed: Callable[[], None]) -> None:
        """See TableSource."""


def _from_manifest(path: Path, raw: bytes) -> Unreadable | Content:
    try:
        manifest = yaml.load(raw, Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())[:200]
        return Unreadable(f"{path} is not YAML: {where}")
    data = manifest.get("data") if isinstance(manifest, dict) else None
    table = data.get(TABLE_KEY) if isinstance(data, dict) else None
    if not isinstance(table, str):
        return Unreadable(f"{path} has no text under data.{TABLE_KEY}; right would be a ConfigMap that holds a table")
    return Content(table.encode("utf-8", "surrogatepass"))
