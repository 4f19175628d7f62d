"""One fault of a manifest as one line for people: where, which resource, which field, what is wrong, what is right.

On the routing-weight path, before anything is solved. Text only; nothing here decides what is a fault.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

Path = tuple[str | int, ...]
Severity = Literal["refused", "dangling", "notice"]

_SHOWN: Final = 60


class ResourceKey(NamedTuple):
    """Which resource: kind, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Origin(NamedTuple):
    """Where a resource stands: the file as it was named, and the line of its first key."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. ``resource`` and ``field`` are empty where the file as a whole is meant.

    severity: "refused" (the resource is left out), "dangling" (it names something that isn't there; time may cure it,
    and it is served where possible), "notice" (worth a word, nothing is wrong).
    """

    file: str
    line: int
    resource: str
    field: str
    value: str
    message: str
    severity: Severity = "refused"

    def __str__(self) -> str:
        parts = [f"{self.file}:{self.line}", self.resource, self.field, self.message]
        return ": ".join(_one_line(part) for part in parts if part)


@dataclass(frozen=True)
class Odd:
    """A scalar that is no plain data of a spec: a fraction, an infinity, a number in another notation."""

    text: str
    why: Literal["fraction", "infinite", "notation", "huge"]


def shown(value: Any) -> str:
    """A value as a message shows it: JSON, cut to a part of a line."""
    if isinstance(value, Odd):
        return value.text if len(value.text) <= _SHOWN else value.text[: _SHOWN - 1] + "…"
    if isinstance(value, str) and len(value) > _SHOWN:
        value = value[: _SHOWN - 1] + "…"
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list | tuple):
        return "[…]" if value else "[]"
    return json.dumps(value, ensure_ascii=False)


def field_name(path: Path) -> str:
    """``spec.frontends[1].name`` for ("spec", "frontends", 1, "name")."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_key(part)}" if text else _key(part)
    return text


def _key(key: str) -> str:
    """A key as it stands in a path; one with dots or strange characters is quoted and cut."""
    plain = key.replace("-", "").replace("_", "").isalnum() and len(key) <= _SHOWN
    return key if plain else shown(key)


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
