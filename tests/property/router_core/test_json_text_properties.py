"""Questions about JSON texts, answered like a parser that builds everything would."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace_router.core.json_text import MAX_STEPS, Shape, elements, value_spans

TEXTS = st.text(alphabet='ab"\\[]{}:,0123456789 \n\u00e9', max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


def depth_of(value: Any) -> int:
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


def digits_of(value: Any) -> int:
    if isinstance(value, list | dict):
        return max(map(digits_of, value if isinstance(value, list) else value.values()), default=0)
    return len(str(abs(value))) if isinstance(value, int) and not isinstance(value, bool) else 0


@given(VALUES, SPACES, st.booleans(), st.integers(1, 4))
def test_shape(value: Any, spaces: tuple[str, str], escaped: bool, digits: int) -> None:
    shape = Shape(json.dumps(value, separators=spaces, ensure_ascii=escaped).encode(), digits)
    assert shape.depth == depth_of(value)
    assert shape.long_number == (digits_of(value) >= digits)


@given(st.lists(VALUES, max_size=6), SPACES)
def test_elements(values: list[Any], spaces: tuple[str, str]) -> None:
    found = [None if part is None else json.loads(part) for part in elements(dumped(values, spaces), MAX_STEPS)]
    assert found == values


@given(st.dictionaries(TEXTS | st.just("model"), VALUES, max_size=6), SPACES)
def test_value_spans(values: dict[str, Any], spaces: tuple[str, str]) -> None:
    data = dumped(values, spaces)
    spans = value_spans(data, "model")
    assert spans is not None
    assert [json.loads(data[start:end]) for start, end in spans] == [
        value for name, value in values.items() if name == "model"
    ]


@given(st.lists(VALUES, min_size=1, max_size=6), SPACES, st.integers(0, 12))
def test_steps_are_a_bound(values: list[Any], spaces: tuple[str, str], steps: int) -> None:
    found = list(elements(dumped(values, spaces), steps))
    whole = [part for part in found if part is not None]
    assert [json.loads(part) for part in whole] == values[: len(whole)]
    assert len(whole) <= steps
    assert (found[-1:] == [None]) == (len(whole) < len(values))


def dumped(value: Any, spaces: tuple[str, str]) -> bytes:
    return json.dumps(value, separators=spaces).encode()
