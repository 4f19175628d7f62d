"""The CRDs: current, structural, bounded, readable; and what they default.

A real API server is the last judge (tests/e2e, with a cluster); this holds the rules that its validation states.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_api import crd
from headrace_api.rules import RULES
from headrace_api.schema import schema_of, structural
from headrace_api.status import EngineStatus, PolicyStatus
from headrace_operator.store.rules import MIRRORS

ROOT = Path(__file__).parents[3]
SCHEMAS = {
    kind.name: crd.custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for kind in crd.KINDS
}
KEYWORDS = {
    "type", "format", "description", "properties", "required", "items", "additionalProperties", "enum", "default",
    "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "maxProperties",
    "x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip


def nodes(schema: dict[str, Any], path: str, in_list: bool = False) -> Iterator[tuple[str, dict[str, Any], bool]]:
    yield path, schema, in_list
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}", in_list)
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]", True)
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}", True)


NODES = [pytest.param(*node, id=node[0]) for name, schema in SCHEMAS.items() for node in nodes(schema, name)]


def test_files_are_current() -> None:
    stale = [str(path) for path, text in crd.outputs(ROOT).items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "write them with: make manifests"


def test_check_tells_a_stale_file_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--root", str(tmp_path)]) == 0
    assert crd.main(["--root", str(tmp_path), "--check"]) == 0
    reference = tmp_path / "docs" / "reference" / "api.md"
    reference.write_text("old", encoding="utf-8")

    assert crd.main(["--root", str(tmp_path), "--check"]) == 1
    assert "api.md is stale" in capsys.readouterr().err
    assert reference.read_text(encoding="utf-8") == "old"


def test_the_router_needs_no_yaml_for_the_api() -> None:
    code = "import sys; sys.modules['yaml'] = None; import headrace_api.crd, headrace_api.table, headrace_api.status"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("path", "schema", "in_list"), NODES)
def test_structural_and_bounded(path: str, schema: dict[str, Any], in_list: bool) -> None:
    assert set(schema) <= KEYWORDS
    assert ("type" in schema) != bool(schema.get("x-kubernetes-int-or-string"))
    assert not ("properties" in schema and "additionalProperties" in schema)
    assert schema.get("properties") != {}, "the API server drops it: Argo CD would show OutOfSync for ever"
    if in_list:
        assert "default" not in schema, "Argo CD would show OutOfSync for ever"
    if not path.endswith(("apiVersion", "kind", "metadata")):
        assert schema.get("description"), "kubectl explain would say nothing"
        _bounded(schema)
    _list_type(schema)


def _bounded(schema: dict[str, Any]) -> None:
    match schema.get("type"):
        case "array":
            assert schema["maxItems"] <= 4096
        case "string":
            assert "enum" in schema or schema["maxLength"] <= 1024
        case "integer":
            assert schema["minimum"] <= schema["maximum"] <= 2**53
        case "object":
            # Without either it holds nothing: the API server prunes what is in it.
            assert "additionalProperties" not in schema or schema["maxProperties"] <= 256
        case None:
            assert schema["maxLength"] and schema["maximum"]


def _list_type(schema: dict[str, Any]) -> None:
    if schema.get("type") != "array":
        return
    kind = schema["x-kubernetes-list-type"]
    if kind == "map":
        assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"])
    elif kind == "set":
        assert schema["items"]["type"] == "string"
    else:
        assert kind == "atomic"


@pytest.mark.parametrize("kind", crd.KINDS, ids=lambda kind: kind.name)
def test_names_and_columns(kind: crd.Kind) -> None:
    found = crd.custom_resource_definition(kind)
    version = found["spec"]["versions"][0]
    assert found["metadata"]["name"] == f"{kind.plural}.headrace.dev"
    assert found["spec"]["names"]["categories"] == ["headrace"]
    assert version["subresources"] == {"status": {}}
    columns = [column["name"].upper() for column in version["additionalPrinterColumns"]]
    assert (
        columns
        == {
            "rpol": ["STRATEGY", "MODE", "READY", "ENGINES", "UTIL", "LATENCY", "SHED", "CHANGED", "AGE"],
            "ieng": ["MODELS", "REGION", "REPLICAS", "STATE", "PENALTY", "READY", "AGE"],
        }[kind.short]
    )
    for column in version["additionalPrinterColumns"]:
        if not column["jsonPath"].startswith((".metadata", ".status.conditions")):
            assert _follow(SCHEMAS[kind.name], column["jsonPath"])["type"] in ("string", "integer")


def _follow(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.strip(".").split("."):
        schema = schema["properties"][name]
    return schema


def test_defaults_are_those_of_the_design() -> None:
    """The values that the example policy shows; the API server applies them because each object has a default."""
    spec = SCHEMAS["RoutingPolicy"]["properties"]["spec"]
    filled = _filled(spec, {"models": [], "frontends": []})
    assert filled["timeouts"] == {"connect": "2s", "firstByte": "120s", "idle": "60s", "send": "60s", "unary": "0s"}
    assert filled["limits"] == {"body": "32Mi", "retryBody": "4Mi"}
    assert filled["queue"] == {"max": 100, "deadline": "2s"}
    assert filled["ejection"] == {"consecutive": 5, "base": "5s", "max": "5m", "maxPercent": 50, "minHealthy": 1}
    assert filled["staleness"] == {"hold": "30s", "degrade": "2m"}
    assert filled["publication"] == {"maxShiftPercent": 30}
    assert filled["network"] == {"default": "150ms", "measured": False}
    assert filled["objective"] == {"moveCost": "200ms", "deadbandPermille": 1}
    assert filled["affinity"] == {"slack": "1s"}
    assert (filled["mode"], filled["strategy"]) == ("Enforce", {"type": "Optimized"})
    budget = {"idlePercent": 20, "saturatedPercent": 1, "minPerSecond": 3}
    assert filled["protection"] == {
        "retry": {"maxAttempts": 3, "budget": budget},
        "shedding": {"header": "x-headrace-priority"},
    }


def _filled(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """What an API server makes of a value: defaults of missing fields, then those inside of them."""
    for name, field in schema.get("properties", {}).items():
        if name not in value and "default" in field:
            value[name] = json.loads(json.dumps(field["default"]))
        if isinstance(value.get(name), dict):
            _filled(field, value[name])
    return value


@pytest.mark.parametrize("kind", [PolicyStatus, EngineStatus], ids=lambda kind: kind.__name__)
def test_status_has_no_defaults(kind: type[Any]) -> None:
    found = [
        path for path, schema, _ in nodes(structural(schema_of(kind, defaults=False)), "status") if "default" in schema
    ]
    assert found == []


def test_every_cel_rule_has_its_mirror() -> None:
    stated = {rule for rules in RULES.values() for rule in rules}
    assert stated == set(MIRRORS)


def test_messages_are_static_and_short() -> None:
    rules = [
        rule
        for schema in SCHEMAS.values()
        for _, node, _ in nodes(schema, "")
        for rule in node.get("x-kubernetes-validations", ())
    ]
    assert rules
    for rule in rules:
        assert set(rule) <= {"rule", "message", "fieldPath"}
        assert len(rule["message"]) <= 200 and "\n" not in rule["message"]


def test_a_crd_fits_kubectls_annotation() -> None:
    """kubectl apply keeps the whole object in an annotation of at most 256 KiB."""
    for kind in crd.KINDS:
        path = ROOT / "crds" / f"{kind.plural}.headrace.dev.yaml"
        assert len(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")))) < 200_000
