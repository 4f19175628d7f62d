"""A real API server takes our types: explained, listed, applied again without a change, and refused in our words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.checkout import ROOT
from support.cluster import Cluster

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

NAMESPACE = "classic"
CLASSIC = "\n---\n".join(
    path.read_text().replace("namespace: inference", f"namespace: {NAMESPACE}")
    for path in sorted((ROOT / "manifests" / "samples" / "classic").glob("*.yaml"))
)
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
MALFORMED = sorted((ROOT / "tests" / "golden" / "manifests").glob("*.yaml"))
# An API server sees one resource at a time, and its YAML reader keeps the last of two equal keys: only `plan` and the
# operator can judge these.
ONLY_OURS = {
    "keys-twice",
    "model-dangling",
    "names-twice",
    "not-yet",
    "requires-dangling",
    "selector-dangling",
    "tables-collide",
}


@pytest.fixture(scope="module")
def types(bare: Cluster) -> Cluster:
    """The cluster with our types, and nothing of them yet."""
    for crd in CRDS:
        bare.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={crd}")
    bare.established()
    bare.kubectl("create", "namespace", "inference", check=False)  # where the malformed ones would stand
    return bare


@pytest.fixture(scope="module")
def classic(types: Cluster) -> Iterator[Cluster]:
    """The cluster with the classic sample, in a namespace of its own."""
    types.kubectl("create", "namespace", NAMESPACE)
    types.kubectl("apply", "--filename=-", stdin=CLASSIC)
    try:
        yield types
    finally:
        types.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def test_what_files_are_refused_for_the_api_server_refuses_too(types: Cluster) -> None:
    """The rules stand twice, in the CRDs and in Python for files: a manifest that one refuses, the other does."""
    accepted = {
        path.stem
        for path in MALFORMED
        if types.kubectl("apply", "--server-side", "--dry-run=server", f"--filename={path}", check=False).returncode
        == 0
    }
    assert accepted == ONLY_OURS


def printer_columns(crd: Path) -> list[str]:
    version = yaml.safe_load(crd.read_text())["spec"]["versions"][0]
    return [column["name"].upper() for column in version["additionalPrinterColumns"] if not column.get("priority")]


def test_explain_knows_the_fields(types: Cluster) -> None:
    told = types.kubectl("explain", "rpol.spec").stdout
    assert "What a RoutingPolicy declares" in told
    assert "frontends" in told


@pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd.stem)
def test_get_prints_the_columns(classic: Cluster, crd: Path) -> None:
    names = yaml.safe_load(crd.read_text())["spec"]["names"]
    heading, *rows = classic.kubectl("get", names["shortNames"][0], f"--namespace={NAMESPACE}").stdout.splitlines()
    assert heading.split() == ["NAME", *printer_columns(crd)]
    assert rows


def test_applying_again_changes_nothing(classic: Cluster) -> None:
    again = classic.kubectl("apply", "--filename=-", stdin=CLASSIC).stdout.splitlines()
    assert again
    assert all(line.endswith(" unchanged") for line in again)
    assert classic.kubectl("diff", "--filename=-", stdin=CLASSIC).stdout == ""


def test_a_bad_edit_is_refused_in_words(classic: Cluster) -> None:
    affinity = {"spec": {"affinity": {"keys": [{"header": "x-session", "field": "user"}]}}}
    refused = classic.kubectl(
        "patch",
        "rpol",
        "classic",
        f"--namespace={NAMESPACE}",
        "--type=merge",
        "--patch",
        json.dumps(affinity),
        check=False,
    )
    assert refused.returncode == 1
    assert "spec.affinity.keys[0]" in refused.stderr
    assert "right would be exactly one of header, field and prefix" in refused.stderr
