"""docs/operator.md, With kube-prometheus: its values make monitors that find what is there, and a right config file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_operator.loader.config import OperatorConfig
from headrace_operator.loader.config_check import parse_config
from support.checkout import ROOT
from support.helm import NAMESPACE, Objects, template

SAMPLE = ROOT / "manifests" / "samples" / "cluster"


@cache
def blocks() -> list[dict[str, Any]]:
    """The section's two examples: values of the chart, and the engines' monitor."""
    page = (ROOT / "docs" / "operator.md").read_text()
    section = page.partition("## With kube-prometheus\n")[2].partition("\n## ")[0]
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)]


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(blocks()[0]))
    return template(values, f"--values={SAMPLE / 'values.yaml'}")


def found(monitor: dict[str, Any], services: list[dict[str, Any]]) -> list[str]:
    """Services that a monitor selects and whose ports have its endpoint's name."""
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    return [
        service["metadata"]["name"]
        for service in services
        if labels <= service["metadata"].get("labels", {}).items()
        and endpoint["port"] in [port.get("name") for port in service["spec"]["ports"]]
    ]


def test_every_monitor_finds_its_service_and_no_other(objects: Objects) -> None:
    services = [one for one in objects.values() if one["kind"] == "Service"]
    monitors = [one for one in objects.values() if one["kind"] == "ServiceMonitor"]
    assert {one["metadata"]["name"]: found(one, services) for one in monitors} == {
        "headrace-operator": ["headrace-operator-metrics"],
        "headrace-router-fe-us-east": ["headrace-router-fe-us-east-admin"],
        "headrace-router-fe-eu-west": ["headrace-router-fe-eu-west-admin"],
    }
    assert {one["metadata"]["labels"]["release"] for one in monitors} == {"prometheus"}


def test_the_operator_asks_for_all_of_it(objects: Objects) -> None:
    """Each front-end's routers by their Service's endpoints, out of the Prometheus that the values name."""
    data = objects[f"ConfigMap {NAMESPACE}/headrace-operator"]["data"]["operator.yaml"]
    config = parse_config(yaml.safe_load(data), "operator.yaml")
    assert isinstance(config, OperatorConfig), config
    assert {entry.frontend: config.source_of(entry.source) for entry in config.routers} == {
        "fe-us-east": "cluster",
        "fe-eu-west": "cluster",
    }
    assert all(entry.service is not None for entry in config.routers)
    assert config.source_of(None) == "cluster"


def test_the_engines_monitor_finds_the_samples_engines() -> None:
    documents = yaml.safe_load_all((SAMPLE / "simulated-engines.yaml").read_text())
    services = [one for one in documents if one["kind"] == "Service"]
    engines = yaml.safe_load_all((SAMPLE / "engines.yaml").read_text())
    named = [one["spec"]["endpoints"]["service"]["name"] for one in engines]
    assert sorted(found(blocks()[1], services)) == sorted(named)
