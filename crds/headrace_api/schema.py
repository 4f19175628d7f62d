"""OpenAPI schemas from the msgspec types: the one description that the CRDs, the docs and the validator share.

Two forms. The *rich* one (``schema_of``) carries bounds under ``x-headrace-…`` keys, for the validator and the docs.
The *structural* one (``structural``) is what an API server takes: those bounds become CEL rules with static messages,
nothing is referenced, nothing has a default inside a list item (Argo CD would show such resources as OutOfSync).
"""

from __future__ import annotations

import inspect as python_inspect
from typing import Any, Final

import msgspec
from msgspec import inspect

from headrace_api.rules import RULES, Rule
from headrace_api.units import DURATION_PATTERN, HIGHEST, LOWEST

Schema = dict[str, Any]

OPEN: Final = "x-headrace-open"  # an object whose unknown fields are ignored
KEYS: Final = "x-headrace-keys"  # the schema of a map's keys
APPLIED: Final = "x-headrace-default"  # a default that the operator applies, since it may not stand in the schema
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
RULES_KEY: Final = "x-kubernetes-validations"


def schema_of(kind: type[msgspec.Struct], *, defaults: bool = True) -> Schema:
    """The rich schema of a struct type; ``defaults=False`` leaves every default out (status)."""
    return _schema(inspect.type_info(kind), defaults=defaults)


def structural(schema: Schema) -> Schema:
    """The form an API server takes: our own keys are gone, bounds that were in them have become CEL rules."""
    kept: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            # The API server drops an empty one, and Argo CD would show the type as OutOfSync for ever.
            kept |= {key: {name: structural(field) for name, field in value.items()}} if value else {}
        elif key in ("items", "additionalProperties"):
            kept[key] = structural(value)
        elif not key.startswith("x-headrace-"):
            kept[key] = value
    rules = [*schema.get(RULES_KEY, ()), *_bounds_as_rules(schema)]
    return kept | {RULES_KEY: rules} if rules else kept


def _bounds_as_rules(schema: Schema) -> list[Schema]:
    if KEYS in schema:
        longest = schema[KEYS]["maxLength"]
        return [
            {
                "rule": f"self.all(key, size(key) <= {longest})",
                "message": f"a key is longer than {longest} characters",
            }
        ]
    if LOWEST not in schema:
        return []
    low, high = schema[LOWEST], schema[HIGHEST]
    if schema.get("pattern") == DURATION_PATTERN:
        rule = f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')"
    else:
        value = "quantity(string(self))"
        rule = f"{value}.compareTo(quantity('{low}')) >= 0 && {value}.compareTo(quantity('{high}')) <= 0"
    return [{"rule": rule, "message": f"must be {low} to {high}"}]


def _schema(info: inspect.Type, *, defaults: bool) -> Schema:
    """The schema of one type; constraints of the outer Annotated are already folded into the inner type."""
    extra: Schema = {}
    if isinstance(info, inspect.Metadata):
        extra = dict(info.extra_json_schema or {})
        info = info.type
    if isinstance(info, inspect.UnionType):
        return _union(info, extra, defaults=defaults)
    schema = _plain(info, defaults=defaults) | extra
    return {"description": schema.pop("description"), **schema} if "description" in schema else schema


def _union(info: inspect.UnionType, extra: Schema, *, defaults: bool) -> Schema:
    """Optional types are the type itself (absent = None); int or string is Kubernetes' own; nothing else is a union."""
    members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
    if len(members) == 1:
        return _schema(members[0], defaults=defaults) | extra
    whole = next(member for member in members if isinstance(member, inspect.IntType))
    text = next(member for member in members if isinstance(member, inspect.StrType))
    description = {"description": extra["description"]} if "description" in extra else {}
    return {**description, INT_OR_STRING: True, **_number_bounds(whole), **_text_bounds(text), **extra}


def _plain(info: inspect.Type, *, defaults: bool) -> Schema:
    match info:
        case inspect.StructType():
            return _object(info, defaults=defaults)
        case inspect.VarTupleType():
            return {
                "type": "array",
                **_present({"minItems": info.min_length, "maxItems": info.max_length}),
                "items": _schema(info.item_type, defaults=False),
            }
        case inspect.DictType():
            return {
                "type": "object",
                **_present({"maxProperties": info.max_length}),
                "additionalProperties": _schema(info.value_type, defaults=False),
                KEYS: _schema(info.key_type, defaults=False),
            }
        case inspect.LiteralType():
            return {"type": "string", "enum": list(info.values)}
        case inspect.StrType():
            return {"type": "string", **_text_bounds(info)}
        case inspect.IntType():
            return {"type": "integer", "format": "int64", **_number_bounds(info)}
        case inspect.BoolType():
            return {"type": "boolean"}
        case _:
            raise TypeError(f"{info} has no place in the API; right would be struct, list, map, text, integer, boolean")


def _object(info: inspect.StructType, *, defaults: bool) -> Schema:
    properties = {field.encode_name: _field(field, defaults=defaults) for field in info.fields}
    required = [field.encode_name for field in info.fields if field.required]
    rules = [_rule(rule) for rule in RULES.get(info.cls, ())]
    return {
        "description": plain_text(info.cls),
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **({OPEN: True} if not info.forbid_unknown_fields else {}),
        **({RULES_KEY: rules} if rules else {}),
    }


def _field(field: inspect.Field, *, defaults: bool) -> Schema:
    schema = _schema(field.type, defaults=defaults)
    value = field.default
    if isinstance(value, str | int | bool):
        return schema | {"default" if defaults else APPLIED: value}
    if defaults and field.default_factory is not msgspec.NODEFAULT and _has_defaults(schema):
        return schema | {"default": {}}
    return schema


def _has_defaults(schema: Schema) -> bool:
    return any("default" in field for field in schema.get("properties", {}).values())


def _rule(rule: Rule) -> Schema:
    return {"rule": rule.expression, "message": rule.message} | ({"fieldPath": f".{rule.field}"} if rule.field else {})


def plain_text(cls: type) -> str:
    """A type's docstring as one line of plain text, for ``kubectl explain``."""
    return " ".join((python_inspect.getdoc(cls) or "").replace("``", "").split())


def _text_bounds(info: inspect.StrType) -> Schema:
    return _present({"minLength": info.min_length, "maxLength": info.max_length, "pattern": info.pattern})


def _number_bounds(info: inspect.IntType) -> Schema:
    return _present({"minimum": info.ge, "maximum": info.le})


def _present(fields: Schema) -> Schema:
    return {key: value for key, value in fields.items() if value is not None}
