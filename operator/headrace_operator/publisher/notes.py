"""What is to be told of a resource: the seed of an Event, wherever Events are kept.

On the routing-weight path; pure.
"""

from __future__ import annotations

from typing import NamedTuple


class EventNote(NamedTuple):
    """One thing to tell: kind and id of the resource, Normal or Warning, reason, sentence."""

    kind: str
    id: str
    type: str
    reason: str
    message: str
