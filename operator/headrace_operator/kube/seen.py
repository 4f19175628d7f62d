"""Statuses as watches tell them, for whoever wrote them: what somebody else changed is to be written again.

On the routing-weight path. The store keeps nothing of statuses, which are no news to decisions; so those that were told
since the last look wait here, by resource. Thread-safe: watches tell from their own threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

KINDS: Final = frozenset({"InferenceEngine", "RoutingPolicy"})


class Seen(NamedTuple):
    """A status as it stood. version: of the resource. digest: equal for equal statuses, within this process."""

    uid: str
    version: str
    digest: int


class SeenStatuses:
    """The latest status of each resource that was told since ``news`` was asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], Seen] = {}

    def tell(self, kind: str, item: Mapping[str, Any]) -> None:
        """Take an object of any kind as a watch or a list gives it, in the order that they tell."""
        metadata = item.get("metadata")
        if kind not in KINDS or not isinstance(metadata, Mapping):
            return
        name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        seen = Seen(str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")), digest_of(item))
        with self._lock:
            self._told[kind, name] = seen

    def news(self) -> dict[tuple[str, str], Seen]:
        """By kind and ``namespace/name``; each is given once."""
        with self._lock:
            told, self._told = self._told, {}
        return told


def older(one: str, other: str) -> bool:
    """Whether a resourceVersion is surely older than another; what can't be compared is not.

    They are decimal numbers of one sequence in every API server (since Kubernetes 1.35 by contract, KEP 5504).
    """
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)


def digest_of(item: Mapping[str, Any]) -> int:
    """Of an object's status; an empty one is as good as none."""
    return hash(msgspec.json.encode(item.get("status") or None, order="deterministic"))
