"""The kustomize way says what the chart says: bases are current, overlays build, a renamed router is the chart's."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from support.checkout import ROOT
from support.helm import NAMESPACE, OVERLAYS, Objects, kustomize, program, template

pytestmark = pytest.mark.timeout(2700)  # with nothing cached helm and kubectl are compiled

HELMS_OWN = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}


def test_bases_are_current() -> None:
    program("helm")
    command = [sys.executable, str(ROOT / "hack" / "manifests" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def comparable(objects: Objects) -> Objects:
    for one in objects.values():
        for label in HELMS_OWN:
            one["metadata"].get("labels", {}).pop(label, None)
    return objects


OPTIONS = {
    "cluster-wide": [],
    "namespaced": ["--set=watchNamespaces={inference}"],
    "prometheus-operator": ["--set=monitoring.enabled=true"],
    "dev": [
        "--set=operator.replicas=1",
        "--set=routers[0].frontend=fe-a",
        "--set=routers[0].policies={inference/chat}",
    ],
}


@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
def test_overlay_is_what_the_chart_makes(overlay: str) -> None:
    """Apart from the namespace, the types and the text of the configuration."""
    made = kustomize(OVERLAYS / overlay)
    configuration = made.pop(f"ConfigMap {NAMESPACE}/headrace-operator")
    made = {key: one for key, one in made.items() if one["kind"] not in ("Namespace", "CustomResourceDefinition")}
    chart = comparable(template(None, *OPTIONS[overlay]))
    chart.pop(f"ConfigMap {NAMESPACE}/headrace-operator")
    if overlay == "dev":
        # The base was rendered for two operators.
        made.pop(f"PodDisruptionBudget {NAMESPACE}/headrace-operator")
    assert made == chart
    assert isinstance(yaml.safe_load(configuration["data"]["operator.yaml"]), dict)


@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
def test_configuration_is_what_the_operator_takes(overlay: str) -> None:
    from headrace_operator.loader.config import OperatorConfig
    from headrace_operator.loader.config_file import read_config

    text = kustomize(OVERLAYS / overlay)[f"ConfigMap {NAMESPACE}/headrace-operator"]["data"]["operator.yaml"]
    assert isinstance(read_config(text.encode(), "operator.yaml"), OperatorConfig)
