"""Hypothesis strategies out of msgspec types: any value that a type's own bounds allow."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

MOST = 3  # entries of a list or map


def values_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Instances of a struct type."""
    return _strategy(inspect.type_info(kind)).map(lambda raw: msgspec.convert(raw, kind))


def _strategy(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.Metadata():
            return _strategy(info.type)
        case inspect.StructType():
            required = {field.encode_name: _strategy(field.type) for field in info.fields if field.required}
            optional = {field.encode_name: _strategy(field.type) for field in info.fields if not field.required}
            return st.fixed_dictionaries(required, optional=optional)
        case inspect.UnionType():
            return st.one_of(*(_strategy(member) for member in info.types))
        case inspect.VarTupleType():
            low = info.min_length or 0
            return st.lists(_strategy(info.item_type), min_size=low, max_size=max(low, MOST))
        case inspect.DictType():
            return st.dictionaries(_strategy(info.key_type), _strategy(info.value_type), max_size=MOST)
        case _:
            return _scalars(info)


def _scalars(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.StrType():
            return _texts(info)
        case inspect.IntType():
            return st.integers(info.ge, info.le if info.le is not None else 2**53)
        case inspect.FloatType():
            low = info.ge if info.ge is not None else info.gt
            return st.floats(low, info.le, exclude_min=info.gt is not None, allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case _:
            raise TypeError(info)


def _texts(info: inspect.StrType) -> st.SearchStrategy[str]:
    low, high = info.min_length or 0, info.max_length or 64
    if info.pattern is None:
        return st.text(min_size=low, max_size=min(high, 12))
    matching = st.from_regex(info.pattern, fullmatch=True, alphabet=st.characters(codec="ascii"))
    return matching.filter(lambda text: low <= len(text) <= high)
