"""What Argo CD makes of statuses: our Lua, run as Argo CD runs it, over statuses of all kinds and anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lupa.lua51 as lupa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.checkout import ROOT
from support.gitops_statuses import CASES

GITOPS = ROOT / "manifests" / "gitops"
SCRIPTS = yaml.safe_load((GITOPS / "argocd" / "argocd-cm.yaml").read_text())["data"]
KEY = "resource.customizations.health.headrace.dev_"
# Argo CD opens these libraries alone (util/lua in its source).
REMOVED = ("string", "math", "io", "os", "debug", "coroutine", "require", "dofile", "loadfile")
KINDS = ("RoutingPolicy", "InferenceEngine")


def lua_value(runtime: Any, value: Any) -> Any:
    """A JSON value as Argo CD hands it to Lua: null is nil."""
    if isinstance(value, Mapping):
        return runtime.table_from({key: lua_value(runtime, part) for key, part in value.items() if part is not None})
    if isinstance(value, list | tuple):
        return runtime.table_from([lua_value(runtime, part) for part in value])
    return value


def health(kind: str, obj: Any) -> tuple[str, str]:
    runtime = lupa.LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    for name in REMOVED:
        runtime.globals()[name] = None
    runtime.globals().obj = lua_value(runtime, obj)
    found = runtime.execute(SCRIPTS[KEY + kind])
    assert set(found.keys()) == {"status", "message"}
    return found.status, found.message


@pytest.mark.parametrize("case", CASES)
def test_health(case: str) -> None:
    """Case STS-02 (argoproj/argo-cd#23578 and others): never Healthy for the old spec, never Progressing for ever.

    https://github.com/argoproj/argo-cd/issues/23578
    """
    kind, obj, told = CASES[case]
    assert health(kind, obj) == told


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Ready", "Stalled", "Published", "Available", "Odd"]) | JSON,
        "status": st.sampled_from(["True", "False", "Unknown"]) | JSON,
        "message": JSON,
        "reason": JSON,
        "observedGeneration": st.integers(0, 3) | JSON,
    },
)
OBJECT = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"generation": st.integers(1, 3) | JSON}) | JSON,
        "status": st.fixed_dictionaries(
            {}, optional={"conditions": st.lists(CONDITION | JSON, max_size=4) | JSON, "observedGeneration": JSON}
        )
        | JSON,
    },
)


@given(st.sampled_from(KINDS), OBJECT)
def test_odd_objects_get_an_answer(kind: str, obj: dict[str, Any]) -> None:
    """An error in a health script would show the whole Application as unknown."""
    told, message = health(kind, obj)
    assert told in ("Healthy", "Progressing", "Degraded")
    assert isinstance(message, str)
    if told == "Healthy":
        ready = [each for each in obj["status"]["conditions"] if isinstance(each, dict) and each.get("type") == "Ready"]
        assert ready[-1]["status"] == "True"


def documents(name: str) -> dict[tuple[str, str], Any]:
    found = yaml.safe_load_all((GITOPS / name).read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_types_come_before_what_is_of_them_and_outlive_every_prune() -> None:
    patch = yaml.safe_load((GITOPS / "argocd" / "operator" / "kustomization.yaml").read_text())["patches"][0]
    added = yaml.safe_load(patch["patch"])["metadata"]["annotations"]
    assert patch["target"] == {"kind": "CustomResourceDefinition"}
    assert added == {"argocd.argoproj.io/sync-wave": "-1", "argocd.argoproj.io/sync-options": "Prune=false"}


def test_the_applications_ignore_no_difference() -> None:
    applications = documents("argocd/applications.yaml")
    assert set(applications) == {("Application", "headrace"), ("Application", "inference-routing")}
    for application in applications.values():
        assert "ignoreDifferences" not in application["spec"]
        assert "ServerSideApply=true" in application["spec"]["syncPolicy"]["syncOptions"]
    fleet = applications["Application", "inference-routing"]["spec"]
    assert "SkipDryRunOnMissingResource=true" in fleet["syncPolicy"]["syncOptions"]


def test_flux_waits_for_the_operator_and_for_policies() -> None:
    found = documents("flux/kustomizations.yaml")
    fleet = found["Kustomization", "inference-routing"]["spec"]
    assert fleet["dependsOn"] == [{"name": "headrace"}]
    assert {entry["kind"] for entry in fleet["healthCheckExprs"]} == set(KINDS)
    sources = {name for kind, name in found if kind == "GitRepository"}
    assert {
        each["spec"]["sourceRef"]["name"] for (kind, _), each in found.items() if kind == "Kustomization"
    } == sources
