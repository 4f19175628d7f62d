"""Status: every field that is written stands in the CRD, and the largest one fits its budget.

Case STS-04: fields outside the schema are pruned and the API server still answers 200
(https://github.com/nolar/kopf/pull/527, https://github.com/zalando-incubator/kopf/issues/313).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_api.schema import schema_of, structural
from headrace_api.status import clip
from headrace_operator.store.schema_check import check
from support.largest import LARGEST


def pruned(schema: dict[str, Any], value: Any) -> Any:
    """What an API server keeps of a value."""
    if isinstance(value, dict):
        return {
            name: pruned(schema["properties"][name], field)
            for name, field in value.items()
            if name in schema["properties"]
        }
    return [pruned(schema["items"], item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", LARGEST)
def test_nothing_written_is_pruned(name: str) -> None:
    written = msgspec.json.decode(msgspec.json.encode(LARGEST[name]))
    schema = structural(schema_of(type(LARGEST[name]), defaults=False))

    assert set(written) == set(schema["properties"]), "the largest status fills every field"
    assert pruned(schema, written) == written


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_status_is_valid_and_reads_back(name: str) -> None:
    data = msgspec.json.encode(LARGEST[name])

    assert list(check(schema_of(type(LARGEST[name]), defaults=False), msgspec.json.decode(data))) == []
    assert msgspec.json.decode(data, type=type(LARGEST[name])) == LARGEST[name]


def test_the_largest_policy_status_fits_its_budget() -> None:
    """Status and Events together stay under 32 KiB."""
    assert len(msgspec.json.encode(LARGEST["policy"])) < 29 * 1024


@pytest.mark.parametrize(
    ("text", "cut"), [("", ""), ("x" * 10, "x" * 10), ("x" * 11, "x" * 9 + "…"), ("one two three", "one two…")]
)
def test_clip(text: str, cut: str) -> None:
    assert clip(text, 10 if text.startswith("x") or not text else 9) == cut
