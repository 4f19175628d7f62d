"""Every malformed manifest has its exact message, no exception, and the good file beside it is served.

Cases CRD-01 (rook/rook#3480 https://github.com/rook/rook/issues/3480), CRD-02
(https://github.com/kubernetes/kubernetes/pull/95423), CRD-04 (https://github.com/openshift/api/pull/412) and CRD-05
(https://github.com/vllm-project/router/pull/96). manifests/NAME.yaml is the input, manifests/NAME.txt what is said.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_operator.store.manifests import Manifests, read_manifests

HERE = Path(__file__).parent / "manifests"
GOOD = HERE / "beside" / "good.yaml"
NOTHING_WRONG = {"not-yet.yaml", "other-kinds.yaml"}
HEAD = "apiVersion: headrace.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: p, namespace: inference}\n"
MANY_FRONTENDS = ", ".join(f"{{name: fe-{n}}}" for n in range(257))
MANY_FAULTS = ", ".join(str(n) for n in range(200))

# Files that would be too large or too strange to keep.
MADE = {
    "file-huge.yaml": b"# " + b"x" * (4 * 2**20),
    "nul-byte.yaml": b"apiVersion: headrace.dev/v1alpha1\nkind: Inference\x00Engine\n",
    "not-utf-8.yaml": "kind: RoutingPolicy\nmetadata: {name: gr\xfc\xdfe}\n".encode("latin-1"),
    "utf-16.yaml": "kind: RoutingPolicy\n".encode("utf-16"),
    "frontends-too-many.yaml": f"{HEAD}spec: {{models: [{{name: m}}], frontends: [{MANY_FRONTENDS}]}}\n".encode(),
    "faults-too-many.yaml": f"{HEAD}spec: {{models: [{{name: m}}], frontends: [{MANY_FAULTS}]}}\n".encode(),
    "text-too-long.yaml": f"{HEAD}spec: {{models: [{{name: {'m' * 129}}}], frontends: [{{name: f}}]}}\n".encode(),
}
INPUTS = sorted([*(path.name for path in HERE.iterdir() if path.suffix in (".yaml", ".json")), *MADE])


def said(name: str, found: Manifests) -> str:
    lines = [
        f"served: {resource.kind} {resource.metadata.namespace}/{resource.metadata.name}"
        for resource in (*found.engines, *found.policies)
        if resource.metadata.name not in ("a", "good")
    ]
    lines += [f"refused: {key}" for key in found.refused]
    lines += [f"{fault.severity}: {fault}" for fault in (*found.faults, *found.notices)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", INPUTS)
def test_message(name: str, golden: Callable[[Path, str], None]) -> None:
    data = MADE.get(name) or (HERE / name).read_bytes()

    found = read_manifests([(name, data), ("good.yaml", GOOD.read_bytes())])

    golden((HERE / name).with_suffix(".txt"), said(name, found))
    assert bool(found.faults) == (name not in NOTHING_WRONG)
    assert all(fault.file == name for fault in (*found.faults, *found.notices))
    assert "a" in {engine.metadata.name for engine in found.engines}
    assert "good" in {policy.metadata.name for policy in found.policies}


def test_there_are_thirty_malformed_manifests() -> None:
    assert len(set(INPUTS) - NOTHING_WRONG) >= 30


def test_every_golden_text_has_its_input() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == {Path(name).stem for name in INPUTS}
