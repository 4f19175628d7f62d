"""The manifests that tests of GitOps diffs apply leave no field out: a new field is tried on its first day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace_api import crd
from headrace_operator.store.manifests import read_manifests
from support import maximal


def fields_of_schema(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    yield path
    for name, field in schema.get("properties", {}).items():
        yield from fields_of_schema(field, f"{path}.{name}")
    if "items" in schema:
        yield from fields_of_schema(schema["items"], path)


def fields_of_value(value: Any, path: str = "") -> Iterator[str]:
    yield path
    for name, part in value.items() if isinstance(value, dict) else ():
        yield from fields_of_value(part, f"{path}.{name}")
    for part in value if isinstance(value, list) else ():
        yield from fields_of_value(part, path)


@pytest.mark.parametrize("kind", crd.KINDS, ids=lambda kind: kind.name)
def test_every_field_is_set_somewhere(kind: crd.Kind) -> None:
    schema = crd.custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    there = {field for raw in maximal.manifests() if raw["kind"] == kind.name for field in fields_of_value(raw["spec"])}
    assert set(fields_of_schema(schema["properties"]["spec"])) - there == set()


def test_they_are_valid() -> None:
    found = read_manifests([("maximal", maximal.text().encode())])
    assert [str(fault) for fault in found.faults if fault.severity == "refused"] == []
