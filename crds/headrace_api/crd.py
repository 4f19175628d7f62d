"""Writes the CustomResourceDefinitions and the API reference from the msgspec types.

``python -m headrace_api.crd`` writes, ``--check`` compares and exits 1 when a file is stale. A tool of the build; the
router imports this package without PyYAML, so it is imported only where YAML is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace_api.base import GROUP, VERSION
from headrace_api.engine import InferenceEngine, InferenceEngineSpec
from headrace_api.policy import RoutingPolicy, RoutingPolicySpec
from headrace_api.reference import reference
from headrace_api.schema import RULES_KEY, Schema, plain_text, schema_of, structural
from headrace_api.status import EngineStatus, PolicyStatus

_HEADER = "# Written by `python -m headrace_api.crd` (make manifests) from the types beside it; edits here are lost.\n"
_READY = '.status.conditions[?(@.type=="Ready")].status'
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


@dataclass(frozen=True)
class Kind:
    """One resource kind: its types, its names, the columns of ``kubectl get`` as (name, JSON path)."""

    resource: type[msgspec.Struct]
    spec: type[msgspec.Struct]
    status: type[msgspec.Struct]
    plural: str
    short: str
    columns: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The kind as manifests spell it."""
        return self.resource.__name__


KINDS: Final = (
    Kind(
        InferenceEngine,
        InferenceEngineSpec,
        EngineStatus,
        "inferenceengines",
        "ieng",
        (
            ("Models", ".status.models"),
            ("Region", ".spec.location.region"),
            ("Replicas", ".status.readyReplicas"),
            ("State", ".spec.state"),
            ("Penalty", ".status.penalty"),
            ("Ready", _READY),
        ),
    ),
    Kind(
        RoutingPolicy,
        RoutingPolicySpec,
        PolicyStatus,
        "routingpolicies",
        "rpol",
        (
            ("Strategy", ".spec.strategy.type"),
            ("Mode", ".spec.mode"),
            ("Ready", _READY),
            ("Engines", ".status.summary.engines"),
            ("Util", ".status.summary.utilization"),
            ("Latency", ".status.summary.latency.total"),
            ("Shed", ".status.summary.shed"),
            ("Changed", ".status.summary.changed"),
        ),
    ),
)
_COLUMN_TYPES = {"Replicas": "integer", "Changed": "date"}


def custom_resource_definition(kind: Kind) -> dict[str, Any]:
    """The apiextensions.k8s.io/v1 object of one kind."""
    columns = [{"name": name, "type": _COLUMN_TYPES.get(name, "string"), "jsonPath": at} for name, at in kind.columns]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["headrace"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [*columns, _AGE],
                    "schema": {"openAPIV3Schema": _root(kind)},
                }
            ],
        },
    }


def _root(kind: Kind) -> Schema:
    own = structural(schema_of(kind.resource))
    return {
        "description": plain_text(kind.resource),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"{GROUP}/{VERSION}.", "type": "string"},
            "kind": {"description": f"{kind.name}.", "type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(schema_of(kind.spec)),
            "status": structural(schema_of(kind.status, defaults=False)),
        },
        RULES_KEY: own[RULES_KEY],
    }


def outputs(root: Path) -> dict[Path, str]:
    """Every generated file under a checkout's root, and what it must hold."""
    files = {root / "crds" / f"{kind.plural}.{GROUP}.yaml": _yaml(custom_resource_definition(kind)) for kind in KINDS}
    kinds = [(kind.name, kind.short, kind.plural, kind.spec, kind.status) for kind in KINDS]
    files[root / "docs" / "reference" / "api.md"] = reference(kinds)
    return files


def _yaml(document: dict[str, Any]) -> str:
    import yaml  # the router has none

    return _HEADER + str(yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, or compare them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m headrace_api.crd", description="Write CRDs and API reference.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the checkout")
    arguments = parser.parse_args(argv)
    stale = [
        (path, text)
        for path, text in outputs(arguments.root).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if arguments.check:
            sys.stderr.write(f"{path} is stale; right would be: python -m headrace_api.crd\n")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
