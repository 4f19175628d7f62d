"""Generations of resources over a restart: a file has none, so the operator counts changes of the spec itself."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace_operator.store.directory import Generation, ResourceName


def stored_generations(stored: Iterable[tuple[str, str, int, object]]) -> dict[ResourceName, Generation]:
    """Generations out of (kind, id, generation, spec as plain data) of status files."""
    return {
        ResourceName(kind, name): Generation(generation, msgspec.json.encode(spec, order="deterministic"))
        for kind, name, generation, spec in stored
    }
