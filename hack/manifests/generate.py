"""Write what is made from other files: the chart's types and schema of values, and the bases that kustomize builds on.

``python hack/manifests/generate.py`` writes; ``--check`` compares and exits 1 when a file is stale (``make manifests``
writes the types themselves first). The kustomize bases are what ``helm template`` says, so helm must be built
(hack/cluster/program.py; it needs Go): ``--without-helm`` leaves them out.
"""

# ruff: noqa: S603 (runs this checkout's own tools)
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from headrace_operator.loader.config import OperatorConfig

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "manifests" / "charts" / "headrace"
KUSTOMIZE = ROOT / "manifests" / "kustomize"
NAMESPACE = "headrace-system"
KEEP = "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n"
HEADER = "# Written by hack/manifests/generate.py (make manifests) from the chart; edits here are lost.\n"


def of_the_chart() -> dict[Path, str]:
    """Files inside the chart, by path."""
    files = {CHART / "values.schema.json": json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n"}
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        text = crd.read_text(encoding="utf-8")
        if text.count("\nmetadata:\n") != 1 or "{{" in text:
            raise SystemExit(f"{crd}: not a CRD that a template can hold as it is")
        kept = text.replace("metadata:\n", KEEP, 1)
        files[CHART / "templates" / "crds" / crd.name] = f"{{{{- if .Values.crds.install }}}}\n{kept}{{{{- end }}}}\n"
    return files


def values_schema() -> dict[str, Any]:
    """The schema of values, with the operator's configuration as its type has it."""
    schema: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "values.schema.yaml").read_text(encoding="utf-8"))
    _, types = msgspec.json.schema_components([OperatorConfig], ref_template="#/definitions/{name}")
    for name, one in types.items():
        one.pop("title", None)
        for field in one.get("properties", {}).values():
            field.pop("default", None)  # the operator's to give, and to change
        if name in schema["definitions"]:
            raise SystemExit(f"{name} is defined in values.schema.yaml and in the operator")
        schema["definitions"][name] = one
    return schema


def of_kustomize(helm: Path) -> dict[Path, str]:
    """The bases, each of one call of helm."""
    operator = _rendered(helm)
    namespaced = _rendered(helm, "watchNamespaces={inference}")
    monitored = _rendered(helm, "monitoring.enabled=true")
    router = ["operator.enabled=false", "routers[0].frontend=frontend", "routers[0].policies={inference/chat}"]
    routers = _rendered(helm, *router, "monitoring.enabled=true")
    wide = {"ClusterRole headrace-operator", "ClusterRoleBinding headrace-operator"}
    types = {name for name in operator if name.startswith("CustomResourceDefinition ")}
    narrow = {name for name in namespaced if name not in operator}
    monitors = {name for name in (*monitored, *routers) if name.startswith("ServiceMonitor ")}
    parts = {
        "base/types.yaml": {name: operator[name] for name in types},
        "base/operator.yaml": {name: one for name, one in operator.items() if name not in wide | types},
        "rights/cluster-wide/rights.yaml": {name: operator[name] for name in wide},
        "rights/namespaced/rights.yaml": {name: namespaced[name] for name in narrow if name.endswith("operator")},
        "rights/own-namespace/rights.yaml": {name: namespaced[name] for name in narrow if name.endswith("own")},
        "router/router.yaml": {name: one for name, one in routers.items() if name not in monitors | types},
        "monitors/operator/monitor.yaml": {name: monitored[name] for name in monitors & set(monitored)},
        "monitors/router/monitor.yaml": {name: routers[name] for name in monitors & set(routers)},
    }
    return {KUSTOMIZE / path: _text(objects) for path, objects in parts.items()}


def _rendered(helm: Path, *values: str) -> dict[str, dict[str, Any]]:
    """Objects of the chart with these values, by kind and name, in Helm's order."""
    options = [option for value in values for option in ("--set", value)]
    command = [helm, "template", "headrace", CHART, "--namespace", NAMESPACE, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"helm: {done.stderr}")
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    for one in objects:
        _forget_helm(one)
    return {f"{one['kind']} {one['metadata']['name']}": one for one in objects}


def _forget_helm(one: dict[str, Any]) -> None:
    metadata = one["metadata"]
    for label in ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"):
        metadata.get("labels", {}).pop(label, None)
    metadata.get("annotations", {}).pop("helm.sh/resource-policy", None)
    if metadata.get("annotations") == {}:
        del metadata["annotations"]


def _text(objects: dict[str, dict[str, Any]]) -> str:
    ordered = [objects[name] for name in sorted(objects)]
    return HEADER + readable(ordered)


class _Dumper(yaml.SafeDumper):
    """Lines of text as lines."""


def _string(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


def readable(objects: list[dict[str, Any]]) -> str:
    """YAML for people: what holds only plain values stands on one line where it fits."""
    dumped = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True, default_flow_style=None
    )
    return str(dumped)


def helm_program() -> Path:
    """Helm, built if it is not there."""
    command = [sys.executable, ROOT / "hack" / "cluster" / "program.py", "helm"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(
            "without helm the kustomize bases are not written; right would be Go on PATH, or --without-helm"
        )
    return Path(done.stdout.strip())


def main() -> int:
    """Write the files, or compare them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    parser.add_argument("--without-helm", action="store_true", help="leave the kustomize bases out")
    asked = parser.parse_args()
    stale = 0
    for files in (of_the_chart, lambda: {} if asked.without_helm else of_kustomize(helm_program())):
        for path, text in files().items():
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            stale += 1
            sys.stderr.write(f"{path.relative_to(ROOT)} {'is stale; right would be make manifests' * asked.check}\n")
            if not asked.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    return 1 if stale and asked.check else 0


if __name__ == "__main__":
    sys.exit(main())
