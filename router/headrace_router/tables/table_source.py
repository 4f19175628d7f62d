"""Where a routing table comes from: what any source says of it, so that the rules for tables stand once (tables.py).

On the routing-weight path. A source hands over bytes and says when there are new ones; it judges no table and orders
none. Must not raise for what it finds: what is missing or unreadable is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no table there now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands there is no table; ``reason`` says why and what would be right."""

    reason: str


@dataclass(frozen=True, slots=True)
class Same:
    """Nothing changed since the last read."""


@dataclass(frozen=True, slots=True)
class Content:
    """A table's bytes."""

    table: bytes


Read = Missing | Unreadable | Same | Content


class TableSource(Protocol):
    """One table's source: a file, a ConfigMap."""

    @property
    def name(self) -> str:
        """What people call it: a path, or NAMESPACE/NAME."""

    @property
    def namespace(self) -> str | None:
        """Whose tables may stand there: policies of this namespace; None: whoever can write there may say."""

    @property
    def label(self) -> str:
        """Its value in the metrics' label ``table``."""

    @property
    def whole(self) -> bool:
        """Whether a read can't meet half of a write."""

    @property
    def way(self) -> str:
        """How the table comes now: ``watch`` or ``file``."""

    @property
    def trouble(self) -> str | None:
        """Why the better way can't be had, in one line; None when nothing is wrong."""

    @property
    def folders(self) -> Sequence[Path]:
        """Folders in which a change may be news."""

    async def read(self) -> Read:
        """What is new since the last read. Called by one task at a time."""

    async def follow(self, changed: Callable[[], None]) -> None:
        """Follow what is in no folder, if anything is: call ``changed`` whenever there may be news, until cancelled."""
