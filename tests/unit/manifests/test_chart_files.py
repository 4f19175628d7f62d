"""The chart as it lies in the checkout: generated parts current, values all described, rights as few as documented.

What helm makes of it is tested in tests/integration/manifests, which needs helm, and in tests/e2e on a real API server.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml

from headrace_api.version import __version__
from support.checkout import ROOT

CHART = ROOT / "manifests" / "charts" / "headrace"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
RIGHTS = ROOT / "manifests" / "kustomize"


def test_generated_files_are_current() -> None:
    command = [sys.executable, str(ROOT / "hack" / "manifests" / "generate.py"), "--check", "--without-helm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_default_values_are_what_the_schema_takes() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)


def objects(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if schema.get("properties"):
        yield path, schema
    for key in ("properties", "definitions"):
        for name, below in schema.get(key, {}).items():
            yield from objects(below, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from objects(schema["items"], f"{path}[]")


OBJECTS = [pytest.param(schema, id=path or "values") for path, schema in objects(SCHEMA, "")]


@pytest.mark.parametrize("schema", OBJECTS)
def test_a_mistyped_value_is_refused_everywhere(schema: Mapping[str, Any]) -> None:
    assert schema["additionalProperties"] is False


def test_every_value_has_a_default_and_a_schema() -> None:
    """A value that is in one of them alone is either refused or not to be found."""
    router = SCHEMA["definitions"]["router"]["properties"]
    assert set(VALUES["routerDefaults"]) == set(router) - {"frontend"}
    assert set(VALUES["operator"]) == set(SCHEMA["properties"]["operator"]["properties"])
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}


def keys(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{path}{name}"
        if isinstance(value, dict):
            yield from keys(value, f"{path}{name}.")


def leaves(values: Mapping[str, Any]) -> set[str]:
    found = set(keys(values))
    return {path for path in found if not any(other.startswith(f"{path}.") for other in found)}


def test_the_documented_values_are_the_chart_s() -> None:
    """docs/install.md names every value by its path or by that of its group, and none that is not there."""
    page = (ROOT / "docs" / "install.md").read_text()
    table = page.partition("<!-- values -->")[2].partition("<!-- end of values -->")[0]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    documented = [path for cell in first for path in re.findall(r"`([A-Za-z.]+)`", cell)]
    assert len(documented) == len(set(documented))
    assert set(documented) <= set(keys(VALUES))
    covered = {path for path in leaves(VALUES) for name in documented if f"{path}.".startswith(f"{name}.")}
    assert leaves(VALUES) - covered == set()


def rules(file: str) -> Iterator[tuple[str, str, str, str]]:
    """(kind of role, resource, names, verb) of each right in a file of roles."""
    for role in yaml.safe_load_all((RIGHTS / file).read_text()):
        for rule in role.get("rules", ()):
            for resource in rule["resources"]:
                names = ",".join(rule.get("resourceNames", ()))
                yield from ((role["metadata"]["name"], resource, names, verb) for verb in rule["verbs"])


RIGHTS_FILES = [
    "base/operator.yaml",
    "rights/cluster-wide/rights.yaml",
    "rights/namespaced/rights.yaml",
    "router/router.yaml",
]


@pytest.mark.parametrize("file", RIGHTS_FILES)
def test_nobody_reads_secrets_or_has_all_of_anything(file: str) -> None:
    """Case group security: a leaked token of ours opens no credential and no workload."""
    found = list(rules(file))
    assert found
    for role, resource, _names, verb in found:
        assert "*" not in (resource, verb), role
        assert resource in {
            "inferenceengines", "routingpolicies", "inferenceengines/status", "routingpolicies/status", "configmaps",
            "leases", "events", "services", "endpointslices", "nodes",
        }  # fmt: skip


def test_routers_write_nothing_and_see_only_their_own_tables() -> None:
    found = list(rules("router/router.yaml"))
    assert {verb for *_, verb in found} <= {"get", "list", "watch"}
    assert {names for _, resource, names, _ in found if resource == "configmaps"} == {"headrace-chat-frontend"}
    assert {names for _, resource, names, _ in found if resource == "leases"} == {"headrace-heartbeat"}


def documented_rights(title: str) -> set[tuple[str, str, str]]:
    """(resource, names, verb) of the table under a heading of docs/install.md."""
    page = (ROOT / "docs" / "install.md").read_text()
    section = page.partition(f"### {title}\n")[2].partition("\n##")[0]
    found = set()
    for row in section.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            resource, *names = re.findall(r"`([^`]+)`", cells[0])
            verbs = re.findall(r"`([a-z]+)`", cells[1])
            assert cells[2], f"{resource}: what for?"
            found |= {(resource, ",".join(names), verb) for verb in verbs}
    return found


@pytest.mark.parametrize(
    ("title", "file", "role"),
    [
        ("The operator", "rights/cluster-wide/rights.yaml", "headrace-operator"),
        ("The operator in its own namespace", "base/operator.yaml", "headrace-operator-leader"),
        ("A router", "router/router.yaml", "headrace-router-frontend"),
    ],
)
def test_the_documented_rights_are_the_granted_ones(title: str, file: str, role: str) -> None:
    granted = {(resource, names, verb) for name, resource, names, verb in rules(file) if name == role}
    shown = {
        (resource, "" if role.startswith("headrace-router") and resource == "configmaps" else names, verb)
        for resource, names, verb in granted
    }
    assert documented_rights(title) == shown


def test_a_namespaced_operator_has_the_cluster_wide_rights_but_for_nodes() -> None:
    wide = {right[1:] for right in rules("rights/cluster-wide/rights.yaml")}
    narrow = {right[1:] for right in rules("rights/namespaced/rights.yaml")}
    assert wide - narrow == {("nodes", "", "list"), ("nodes", "", "watch")}
    assert narrow <= wide
