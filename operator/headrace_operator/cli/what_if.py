"""``--set [NAME:]path=value``: the same manifests with some fields changed, checked like any manifest.

Without NAME every policy is changed (``spec.objective.moveCost=0s``); with one, that policy or engine
(``b:spec.capacity.perReplica.requestsPerSecond=50``). An entry of a list is named or numbered:
``spec.frontends[fe-b].demand.requestsPerSecond=150``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from headrace_api.base import resource_id
from headrace_api.engine import InferenceEngine
from headrace_api.policy import RoutingPolicy
from headrace_operator.store.manifests import Manifests, read_manifests

_CHANGE: Final = re.compile(r"(?:(?P<name>[a-z0-9][-a-z0-9./]*):)?(?P<path>[A-Za-z][^=]*)=(?P<value>.*)", re.DOTALL)
_PART: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*)((?:\[[^\]]+\])*)")
_FLAG: Final = "--set"
_PLACE: Final = re.compile(rf"(?<!\S){_FLAG}:\d+")
_RIGHT: Final = "right would be [NAME:]spec.objective.moveCost=0s"
Resource = InferenceEngine | RoutingPolicy


class Altered(NamedTuple):
    """The changed manifests, and what could not be changed."""

    manifests: Manifests
    faults: tuple[str, ...]


class _Wrong(Exception):
    """A change that can't be made; the message says why."""


def changed(manifests: Manifests, changes: Sequence[str], namespace: str) -> Altered:
    """Manifests after all changes, in their order."""
    resources: list[Resource] = [*manifests.engines, *manifests.policies]
    documents = [_builtins(resource) for resource in resources]
    faults: list[str] = []
    for change in changes:
        try:
            _apply(change, resources, documents, namespace)
        except _Wrong as wrong:
            faults.append(f"--set {change}: {wrong}")
    text = yaml.safe_dump_all(documents, sort_keys=False).encode()
    again = read_manifests([(_FLAG, text)], namespace=namespace)
    # The changed manifests stand in no file: a line of theirs would lead nowhere.
    return Altered(again, (*faults, *(_PLACE.sub(_FLAG, str(fault)) for fault in again.faults)))


def _builtins(resource: Resource) -> dict[str, Any]:
    """The resource as plain lists and mappings that can be changed."""
    return dict(msgspec.json.decode(msgspec.json.encode(resource)))


def _apply(change: str, resources: Sequence[Resource], documents: Sequence[dict[str, Any]], namespace: str) -> None:
    match = _CHANGE.fullmatch(change)
    if match is None:
        raise _Wrong(_RIGHT)
    steps = _steps(match["path"])
    if steps[0] != "spec":
        raise _Wrong(f"only fields of spec can be changed; {_RIGHT}")
    chosen = [
        document
        for resource, document in zip(resources, documents, strict=True)
        if _meant(resource, match["name"], namespace)
    ]
    if not chosen:
        raise _Wrong(f"no policy or engine is named {match['name']!r}" if match["name"] else "there is no policy")
    try:
        value = yaml.safe_load(match["value"])
    except yaml.YAMLError:
        value = match["value"]
    for document in chosen:
        _put(document, steps, value)


def _meant(resource: Resource, name: str | None, namespace: str) -> bool:
    if name is None:
        return isinstance(resource, RoutingPolicy)
    return resource_id(resource.metadata) == (name if "/" in name else f"{namespace}/{name}") or (
        "/" not in name and resource.metadata.name == name
    )


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    for part in path.strip().split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise _Wrong(f"{part!r} is no field; {_RIGHT}")
        steps.append(match[1])
        steps += re.findall(r"\[([^\]]+)\]", match[2])
    return steps


def _put(document: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    place: Any = document
    for step in steps[:-1]:
        place = _entry(place, step) if isinstance(place, list) else place.setdefault(step, {})
        if not isinstance(place, dict | list):
            raise _Wrong(f"{step!r} holds a value, not fields")
    if isinstance(place, list):
        place[place.index(_entry(place, steps[-1]))] = value
    else:
        place[steps[-1]] = value


def _entry(items: list[Any], step: str) -> Any:
    """The entry of a list by its name, its model's name or its number."""
    named = [item for item in items if isinstance(item, dict) and item.get("name") == step]
    if named:
        return named[0]
    if step.isdecimal() and int(step) < len(items):
        return items[int(step)]
    names = [item["name"] for item in items if isinstance(item, dict) and "name" in item]
    raise _Wrong(f"no entry {step!r}; there are {', '.join(names) or f'{len(items)} without names'}")
