"""Checks plain data against the schemas that the CRDs are generated from, and gives every fault, not just the first.

On the routing-weight path. The rules are an API server's, not JSON Schema's: null in a mapping means missing, objects
are closed, patterns match whole texts, lists are maps or sets, an int-or-string is one type. Messages name the value
and what would be right. A differential test holds this against the jsonschema library.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from headrace_api import base, units
from headrace_api.schema import INT_OR_STRING, KEYS, OPEN, Schema
from headrace_api.urls import URL_PATTERN, normal_url, without_credentials
from headrace_operator.store.faults import Odd, Path, field_name, shown

# What a text of each pattern is, and a right one.
WORDS: Final[dict[str, tuple[str, str]]] = {
    units.DURATION_PATTERN: ("a duration", "200ms, 2s or 1m30s"),
    units.QUANTITY_PATTERN: ("a quantity", "12 or 500m"),
    base.NAME_PATTERN: ("an object's name", "lower-case letters, digits, - and ., such as chat-eu"),
    base.LABEL_PATTERN: ("a name", "lower-case letters, digits and -, such as fe-us-east"),
    base.MODEL_PATTERN: ("a model's name", "a name such as meta-llama/Llama-3.1-70B"),
    base.PLACE_PATTERN: ("a place", "a name such as us-east-1"),
    base.HEADER_PATTERN: ("a header's name", "a name such as x-session-id"),
    base.KEY_PATTERN: ("a key", "letters, digits, -, _ and ., such as ca.crt"),
    base.LABEL_KEY_PATTERN: ("a label's key", "a key such as tier or example.com/tier"),
    base.LABEL_VALUE_PATTERN: ("a label's value", "letters, digits, -, _ and ."),
    base.IDENTIFIER_PATTERN: ("a name", "letters, digits and _, such as prompt_cache_key"),
    base.HOST_PATTERN: ("a host's name", "a name such as gpu.example"),
    base.HARDWARE_PATTERN: ("an accelerator's name", "a name such as H100-80GB"),
    base.PATH_PATTERN: ("a path", "a path such as /v1/rerank"),
}


_START: Final = 40


class Finding(NamedTuple):
    """What is wrong at a path; ``value`` as it may be shown."""

    path: Path
    value: str
    message: str


def check(schema: Schema, value: Any, path: Path = ()) -> Iterator[Finding]:
    """Every fault of a value, in the order of its fields."""
    if schema.get(INT_OR_STRING):
        yield from _quantity(schema, value, path)
    else:
        yield from _CHECKS[schema["type"]](schema, value, path)


def suggestion(name: str, known: Any) -> str:
    """`` did you mean X?``-like help: the closest known name, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name[:64], names, n=1, cutoff=0.7)
    return f"right would be {close[0]}" if close else f"right would be one of {', '.join(names)}"


def _object(schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(value, dict):
        fields = ", ".join(schema.get("properties", ())) or "keys and texts"
        yield _wrong(path, value, "a mapping", f"a mapping of {fields}")
    elif "properties" in schema:
        yield from _closed_object(schema, value, path)
    else:
        yield from _map(schema, value, path)


def _closed_object(schema: Schema, value: dict[str, Any], path: Path) -> Iterator[Finding]:
    properties = schema["properties"]
    for name, field in value.items():
        here = (*path, name)
        if name not in properties:
            if not schema.get(OPEN):
                yield Finding(here, shown(field), f"no such field; {_field_hint(name, properties)}")
        elif field is not None:
            yield from check(properties[name], field, here)
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield Finding((*path, name), "", f"is missing; right would be: {_meaning(properties[name])}")


def _field_hint(name: str, properties: Schema) -> str:
    return suggestion(name, properties) if properties else "right would be {}"


def _meaning(schema: Schema) -> str:
    text = str(schema.get("description") or schema.get("type"))
    return text[0].lower() + text[1:].rstrip(".")


def _map(schema: Schema, value: dict[str, Any], path: Path) -> Iterator[Finding]:
    if len(value) > schema["maxProperties"]:
        most = schema["maxProperties"]
        yield Finding(path, "{…}", f"has {len(value)} entries; right would be at most {most}")
    for key, entry in value.items():
        for finding in check(schema[KEYS], key, (*path, key)):
            yield finding._replace(message=f"as a key, {finding.message}")
        if entry is not None:
            yield from check(schema["additionalProperties"], entry, (*path, key))


def _array(schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(value, list):
        yield _wrong(path, value, "a list", "a list, even of one entry")
        return
    most, least = schema["maxItems"], schema.get("minItems", 0)
    if len(value) > most:
        yield Finding(path, "[…]", f"has {len(value)} entries; right would be at most {most}")
    if len(value) < least:
        yield Finding(path, "[]", f"has {len(value)} entries; right would be at least {least}")
    for index, item in enumerate(value):
        yield from check(schema["items"], item, (*path, index))
    yield from _repeated(schema, value, path)


def _repeated(schema: Schema, items: list[Any], path: Path) -> Iterator[Finding]:
    """Entries of a set, or keys of a list-map, that stand twice."""
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    names = schema.get("x-kubernetes-list-map-keys", ())
    seen: dict[Any, int] = {}
    for index, item in enumerate(items):
        identity = _identity(schema, item, names)
        if identity is None:
            continue
        first = seen.setdefault(identity, index)
        if first != index:
            at = (*path, index, names[0]) if len(names) == 1 else (*path, index)
            text = " to ".join(shown(part) for part in identity)
            where = field_name((*path, first))
            yield Finding(at, text, f"{text} stands already at {where}; right would be once")


def _identity(schema: Schema, item: Any, names: Any) -> tuple[str, ...] | None:
    """What makes an entry the same as another; None when it has a fault of its own."""
    inside = item if isinstance(item, dict) else {}
    parts = [inside.get(name) for name in names] or [item]
    texts = tuple(part for part in parts if isinstance(part, str))
    if len(texts) != len(parts):
        return None
    if schema["items"].get("pattern") == URL_PATTERN:
        try:
            return (normal_url(item),)
        except ValueError:
            return None
    return texts


def _string(schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
    pattern = schema.get("pattern", "")
    if not isinstance(value, str):
        yield _not_text(path, value, schema)
    elif "enum" in schema:
        if value not in schema["enum"]:
            hint = suggestion(value, schema["enum"])
            yield Finding(path, shown(value), f"{shown(value)} is not known; {hint}")
    elif len(value) > schema["maxLength"]:
        text = without_credentials(value)[:_START] if pattern == URL_PATTERN else shown(value)
        most = schema["maxLength"]
        yield Finding(path, text, f"{text} has {len(value)} characters; right would be at most {most}")
    elif pattern == URL_PATTERN:
        yield from _url(value, path)
    elif len(value) < schema.get("minLength", 0) or (pattern and not _compiled(pattern).fullmatch(value)):
        yield _wrong(path, value, *WORDS[pattern])
    else:
        yield from _in_bounds(schema, value, path, units.seconds)


def _url(value: str, path: Path) -> Iterator[Finding]:
    try:
        right = normal_url(value)
    except ValueError as error:
        yield Finding(path, without_credentials(value), str(error))
    else:
        if not _compiled(URL_PATTERN).fullmatch(value):
            yield Finding(path, shown(value), f"{shown(value)} is not a plain address; right would be {shown(right)}")


def _not_text(path: Path, value: Any, schema: Schema) -> Finding:
    if isinstance(value, bool):
        why = "a truth value (so YAML reads yes, no, on and off)"
        return Finding(path, shown(value), f"{shown(value)} is {why}; right would be text in quotes")
    if isinstance(value, int | Odd):
        if schema.get("pattern") == units.DURATION_PATTERN:
            return Finding(path, shown(value), f"{shown(value)} has no unit; right would be 200ms, 2s or 1m30s")
        return Finding(path, shown(value), f'{shown(value)} is a number; right would be "{shown(value)}" in quotes')
    return _wrong(path, value, "text", "text, or no entry")


def _integer(schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
    low, high = schema["minimum"], schema["maximum"]
    bounds = f"{low} to {high}"
    if isinstance(value, int) and not isinstance(value, bool):
        if not low <= value <= high:
            side = f"below {low}" if value < low else f"above {high}"
            yield Finding(path, shown(value), f"{shown(value)} is {side}; right would be {bounds}")
    elif isinstance(value, Odd):
        yield Finding(
            path, shown(value), f"{shown(value)} is {_oddity(value)}; right would be a whole number, {bounds}"
        )
    elif isinstance(value, str) and _WHOLE.fullmatch(value):
        yield Finding(path, shown(value), f"{shown(value)} is text; right would be {value} without quotes")
    else:
        yield _wrong(path, value, "a whole number", bounds)


def _boolean(_: Schema, value: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(value, bool):
        yield _wrong(path, value, "a truth value", "true or false, without quotes")


def _quantity(schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
    low, high = schema[units.LOWEST], schema[units.HIGHEST]
    if isinstance(value, Odd):
        right = f'"{value.text}" in quotes, or thousandths such as 1500m' if value.why == "fraction" else "12 or 500m"
        yield Finding(path, shown(value), f"{shown(value)} is {_oddity(value)}; right would be {right}")
    elif not _is_quantity(schema, value):
        yield _wrong(path, value, *WORDS[schema["pattern"]])
    elif isinstance(value, int) and not schema["minimum"] <= value <= schema["maximum"]:
        side = f"below {low}" if value < 0 else f"above {high}"
        yield Finding(path, shown(value), f"{shown(value)} is {side}; right would be {low} to {high}")
    else:
        yield from _in_bounds(schema, value, path, units.number)


def _is_quantity(schema: Schema, value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= schema["maxLength"] and bool(_compiled(schema["pattern"]).fullmatch(value))
    return isinstance(value, int) and not isinstance(value, bool)


def _in_bounds(schema: Schema, value: Any, path: Path, meant: Callable[[Any], float]) -> Iterator[Finding]:
    """Whether a duration or quantity lies within the bounds that its field states, if it states any."""
    if units.LOWEST not in schema:
        return
    low, high = schema[units.LOWEST], schema[units.HIGHEST]
    amount = meant(value)
    if not meant(low) <= amount <= meant(high):
        side = f"below {low}" if amount < meant(low) else f"above {high}"
        yield Finding(path, shown(value), f"{shown(value)} is {side}; right would be {low} to {high}")


def _oddity(value: Odd) -> str:
    return {
        "fraction": "a number with a fraction",
        "infinite": "not a finite number",
        "notation": "not a plain decimal number",
        "huge": "too large a number",
    }[value.why]


def _wrong(path: Path, value: Any, what: str, right: str) -> Finding:
    return Finding(path, shown(value), f"{shown(value)} is not {what}; right would be {right}")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_CHECKS: Final[dict[str, Callable[[Schema, Any, Path], Iterator[Finding]]]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _integer,
    "boolean": _boolean,
}
