"""The KV cache of one simulated engine: a pool of blocks, and prefix blocks that requests share.

On the engine's step loop. Pure: counts only, no clock. A block holds 16 tokens (vLLM's default); prefixes are reused
in larger units of ``unit`` blocks, each known by the key of its whole prefix. What no request refers to stays
cached until its blocks are needed, least recently used first. It must not hand out a block twice or lose one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

BLOCK_TOKENS: Final = 16  # vLLM's default block size

PrefixKey = bytes | int | tuple[int, int]


class BlockPool:
    """Blocks are free, private to one request, or part of a cached prefix block with a count of its users."""

    def __init__(self, total: int, unit: int) -> None:
        """``total`` blocks; a prefix block is ``unit`` of them.

        Raises:
            ValueError: fewer than one block in either.
        """
        if total < 1 or unit < 1:
            raise ValueError(f"a pool of {total} blocks in prefix units of {unit}; both must be at least 1")
        self.total = total
        self.unit = unit
        self.free = total
        self._users: dict[PrefixKey, int] = {}
        self._idle: OrderedDict[PrefixKey, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that a request may get: free ones and those of prefixes that nobody uses now."""
        return self.free + len(self._idle) * self.unit

    @property
    def usage(self) -> float:
        """Share of blocks in use by requests, 0 to 1; cached but unused ones count as not in use, as in vLLM."""
        return 1.0 - self.available / self.total

    def hits(self, prefix: Sequence[PrefixKey]) -> int:
        """How many leading prefix blocks are cached."""
        for index, key in enumerate(prefix):
            if key not in self._users and key not in self._idle:
                return index
        return len(prefix)

    def share(self, keys: Iterable[PrefixKey]) -> None:
        """Add a user to each of these cached prefix blocks."""
        for key in keys:
            if key in self._idle:
                del self._idle[key]
            self._users[key] = self._users.get(key, 0) + 1

    def take(self, blocks: int) -> bool:
        """Make ``blocks`` private to a request, evicting idle prefixes as needed; if short, take none and say False."""
        if blocks > self.available:
            return False
        while self.free < blocks:
            self._idle.popitem(last=False)
            self.free += self.unit
        self.free -= blocks
        return True

    def publish(self, key: PrefixKey) -> bool:
        """Turn ``unit`` private blocks into a cached prefix block with one user; False if another holds it already."""
        if key in self._users or key in self._idle:
            return False
        self._users[key] = 1
        return True

    def release(self, private: int, shared: Sequence[PrefixKey]) -> None:
        """Give back private blocks and one use of each shared one; deep blocks age first: their parents serve more."""
        self.free += private
        for key in reversed(shared):
            left = self._users[key] - 1
            if left:
                self._users[key] = left
            else:
                del self._users[key]
                self._idle[key] = None
