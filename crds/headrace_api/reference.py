"""The API reference as Markdown, from the same schemas as the CRDs: fields, types, defaults, bounds, rules.

Used by the generator alone; pure text in, text out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headrace_api.base import API_VERSION
from headrace_api.schema import APPLIED, INT_OR_STRING, KEYS, RULES_KEY, Schema, plain_text, schema_of
from headrace_api.units import DURATION_PATTERN, HIGHEST, LOWEST

KindRow = tuple[str, str, str, type[msgspec.Struct], type[msgspec.Struct]]

_OPENING = f"""# API reference

Written by `make manifests` from the types in `crds/headrace_api`; edits here are lost.

All kinds are of `{API_VERSION}`, namespaced, in the category `headrace`. Durations are written `200ms`, `2s` or
`1m30s`; quantities `12`, `500m` or `32Mi`; there are no floats. Unknown fields are refused; null means missing.
Names of resources have at most 63 characters. A field marked *applied* has its default applied by the operator,
not written into the resource: it stands inside a list.
"""


def reference(kinds: Iterable[KindRow]) -> str:
    """The whole page. ``kinds``: (kind, short name, plural, spec type, status type)."""
    parts = [_OPENING]
    for name, short, plural, spec, status in kinds:
        parts.append(f"## {name}\n\n`kubectl get {plural}` (`{short}`). {plain_text(spec)}\n\n{_table('spec', spec)}")
        parts.append(f"### Status of {name}\n\n{plain_text(status)}\n\n{_table('status', status)}")
    return "\n".join(parts)


def _table(top: str, kind: type[msgspec.Struct]) -> str:
    schema = schema_of(kind, defaults=top == "spec")
    rows = [f"| `{path}` | {form} | {default} | {text} |" for path, form, default, text in _rows(top, schema)]
    head = "| field | type and bounds | default | meaning |\n|---|---|---|---|\n"
    rules = [f"- `{path}`: {message}." for path, message in _rules(top, schema)]
    listed = "\nRefused beside that:\n\n" + "\n".join(rules) + "\n" if rules else ""
    return head + "\n".join(rows) + "\n" + listed


def _rows(path: str, schema: Schema) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        here = f"{path}.{name}"
        default = "*required*" if name in required else _default(field) if path.startswith("spec") else ""
        yield here, _form(field), default, _cell(field.get("description", ""))
        inner = field.get("items", field)
        if "properties" in inner:
            yield from _rows(here + ("[]" if "items" in field else ""), inner)


def _rules(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    for rule in schema.get(RULES_KEY, ()):
        yield path + rule.get("fieldPath", ""), rule["message"]
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        yield from _rules(f"{path}.{name}" + ("[]" if "items" in field else ""), inner)


def _default(field: Schema) -> str:
    value = field.get("default", field.get(APPLIED, ""))
    if value in ("", {}):
        return ""
    written = str(value).lower() if isinstance(value, bool) else value
    return f"`{written}`" + (" *applied*" if APPLIED in field else "")


def _form(field: Schema) -> str:
    if "items" in field:
        return f"list of {_bounds(field, 'minItems', 'maxItems')}{_item(field['items'])}"
    if KEYS in field:
        return f"map of up to {field['maxProperties']}, text to {_form(field['additionalProperties'])}"
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if field.get(INT_OR_STRING):
        return f"quantity, {field[LOWEST]} to {field[HIGHEST]}"
    if field.get("pattern") == DURATION_PATTERN:
        return f"duration, {field[LOWEST]} to {field[HIGHEST]}"
    if field["type"] == "string":
        return f"text, {_bounds(field, 'minLength', 'maxLength')}characters"
    if field["type"] == "integer":
        return f"integer, {field['minimum']} to {field['maximum']}"
    return str(field["type"])


def _item(item: Schema) -> str:
    return "objects" if item["type"] == "object" else f"text, {_bounds(item, 'minLength', 'maxLength')}characters"


def _bounds(field: Schema, low: str, high: str) -> str:
    return f"{field[low]} to {field[high]} " if low in field else f"up to {field[high]} "


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("<", "&lt;")
