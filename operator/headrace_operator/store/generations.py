"""Generations of resources over a restart: a file has none, so the operator counts changes of the spec itself."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace_operator.store.directory import Generation
from headrace_operator.store.manifests import KINDS
from headrace_operator.store.resources import ResourceName, spec_json


def stored_generations(stored: Iterable[tuple[str, str, int, object]]) -> dict[ResourceName, Generation]:
    """Generations out of (kind, id, generation, spec as plain data) of status files.

    A spec that this version can't read counts as another one: its resource goes on one generation later.
    """
    found: dict[ResourceName, Generation] = {}
    for kind, name, generation, plain in stored:
        if kind not in KINDS:
            continue
        try:
            spec = spec_json(msgspec.convert(plain, KINDS[kind][1]))
        except msgspec.ValidationError:
            spec = b""
        found[ResourceName(kind, name)] = Generation(generation, spec)
    return found
