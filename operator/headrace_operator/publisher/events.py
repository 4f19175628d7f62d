"""Events, deduplicated: one object a reason and resource, with a deterministic name and a count.

On the routing-weight path. The same thing said again counts up instead of making a new object, and the number kept is
bounded, because Events expire and status is the audit.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from headrace_api.base import API_VERSION
from headrace_api.status import clip
from headrace_operator.publisher.configmap import MANAGER
from headrace_operator.publisher.notes import EventNote

MAX_EVENTS: Final = 256
MAX_MESSAGE: Final = 1024
MAX_COUNT: Final = 2**31 - 1


def event_name(kind: str, name: str, reason: str) -> str:
    """The Event's name: the resource's, and a digest of what it is about."""
    digest = sha256(f"{kind}/{name}/{reason}".encode()).hexdigest()[:16]
    return f"{name.rpartition('/')[2][:200]}.{digest}"


def with_event(
    events: list[dict[str, Any]], kind: str, name: str, severity: str, reason: str, message: str, at: str
) -> list[dict[str, Any]]:
    """The events after one more, newest last. name: ``namespace/name`` of the resource; at: RFC 3339."""
    note = EventNote(kind, name, severity, reason, message)
    place = (name.rpartition("/")[0], event_name(kind, name, reason))
    old = next((event for event in events if _key(event) == place), None)
    event = event_after(old, note, at)
    return [*(event for event in events if _key(event) != place), event][-MAX_EVENTS:]


def event_after(
    old: Mapping[str, Any] | None, note: EventNote, at: str, *, times: int = 1, uid: str = ""
) -> dict[str, Any]:
    """The Event of a note that came up ``times`` times since ``old``. at: RFC 3339. uid: the resource's, if known."""
    namespace, _, bare = note.id.rpartition("/")
    about = {"apiVersion": API_VERSION, "kind": note.kind, "name": bare, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(note.kind, note.id, note.reason), "namespace": namespace},
        "involvedObject": about | ({"uid": uid} if uid else {}),
        "type": note.type,
        "reason": note.reason,
        "message": clip(note.message, MAX_MESSAGE),
        "count": min(MAX_COUNT, _count(old) + times),
        "firstTimestamp": (old.get("firstTimestamp") if old else None) or at,
        "lastTimestamp": at,
        "source": {"component": MANAGER},
    }


def _key(event: dict[str, Any]) -> tuple[Any, Any]:
    metadata = event.get("metadata")
    return (metadata.get("namespace"), metadata.get("name")) if isinstance(metadata, dict) else (None, None)


def _count(event: Mapping[str, Any] | None) -> int:
    count = event.get("count") if event else 0
    return count if isinstance(count, int) else 0
