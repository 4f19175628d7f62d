"""Policies as people write them, on a real cluster: Shadow, two for one front-end, an engine that two of them share.

In a namespace of their own, whose front-ends have no routers: demand is what they declare. Engines are the sample's
pods, by url.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster import await_true
from support.stage import MODEL, WEIGHT_TOTAL, Stage

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

NAMESPACE = "rules"
SOON = 120.0
PODS = {"one": "h200-westeurope", "two": "h100-swedencentral"}


@pytest.fixture(scope="module")
def rules(stage: Stage) -> Iterator[Stage]:
    """Two engines of 100 requests/s a replica, one replica each."""
    stage.cluster.kubectl("create", "namespace", NAMESPACE)
    for name, service in PODS.items():
        apply(stage, "InferenceEngine", name, engine_spec(f"http://{service}.inference.svc.cluster.local:8000"), name)
    try:
        yield stage
    finally:
        stage.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def engine_spec(url: str) -> dict[str, Any]:
    flat = {
        "ttft": [{"utilizationPercent": 0, "latency": "50ms"}],
        "tbot": [{"utilizationPercent": 0, "latency": "5ms"}],
    }
    return {
        "models": [{"name": MODEL}],
        "endpoints": {"urls": [url]},
        "capacity": {"perReplica": {"requestsPerSecond": 100}},
        "profile": flat,
    }


def policy_spec(frontend: str, demand: float, **more: Any) -> dict[str, Any]:
    frontends = [{"name": frontend, "demand": {"requestsPerSecond": demand}}]
    return {"models": [{"name": MODEL}], "frontends": frontends, **more}


def apply(stage: Stage, kind: str, name: str, spec: dict[str, Any], label: str = "") -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"engine": label} if label else {}}
    manifest = {"apiVersion": "headrace.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    stage.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))


def says(stage: Stage, policy: str, of: str, status: str) -> dict[str, Any]:
    """The policy's condition, once it is so for the spec as it stands."""

    def so() -> bool:
        found = stage.resource("rpol", policy, NAMESPACE)
        judged = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        return judged and stage.condition("rpol", policy, of, NAMESPACE)["status"] == status

    await_true(so, f"{policy}: {of} is {status}\n{stage.status(policy, NAMESPACE)}", SOON)
    return stage.condition("rpol", policy, of, NAMESPACE)


def tables(stage: Stage, policy: str) -> list[dict[str, Any]]:
    """The ConfigMaps of a policy."""
    chosen = f"--namespace={NAMESPACE}", f"--selector=headrace.dev/policy={policy}"
    found: list[dict[str, Any]] = stage.cluster.get("configmaps", *chosen)["items"]
    return found


def test_shadow_publishes_nothing_and_says_what_it_would(rules: Stage) -> None:
    """And what was published before it became a shadow stands, whatever it would do now."""
    apply(rules, "RoutingPolicy", "shadow", policy_spec("rules-shadow", 30, mode="Shadow"))
    assert says(rules, "shadow", "Ready", "True")["reason"] == "Shadow"
    [weights] = rules.status("shadow", NAMESPACE)["weights"]
    assert weights.startswith("rules-shadow: ")
    assert rules.status("shadow", NAMESPACE)["summary"]["demand"] == "30 requests/s"
    assert tables(rules, "shadow") == []

    rules.patch("rpol", "shadow", {"spec": {"mode": "Enforce"}}, NAMESPACE)
    await_true(lambda: tables(rules, "shadow"), "now it publishes", SOON)
    rules.patch("rpol", "shadow", {"spec": {"mode": "Shadow"}}, NAMESPACE)
    await_true(
        lambda: rules.condition("rpol", "shadow", "Ready", NAMESPACE).get("reason") == "Shadow", "a shadow again", SOON
    )
    stood = tables(rules, "shadow")
    rules.patch("ieng", "one", {"spec": {"state": "Draining"}}, NAMESPACE)
    try:
        would = ["rules-shadow: two 100 %"]
        await_true(lambda: rules.status("shadow", NAMESPACE)["weights"] == would, f"it would do {would}", SOON)
        assert tables(rules, "shadow") == stood
    finally:
        rules.patch("ieng", "one", {"spec": {"state": "Active"}}, NAMESPACE)
        rules.cluster.kubectl("delete", "rpol", "shadow", f"--namespace={NAMESPACE}")


def test_what_only_the_operator_can_judge_is_said_and_the_old_table_stays(rules: Stage) -> None:
    """The API server sees one policy at a time, and takes a second one for the same front-end."""
    apply(rules, "RoutingPolicy", "older", policy_spec("rules-both", 30))
    says(rules, "older", "Published", "True")
    stood = tables(rules, "older")
    assert stood
    apply(rules, "RoutingPolicy", "younger", policy_spec("rules-both", 50))
    told = says(rules, "younger", "Stalled", "True")["message"]
    assert "older is older and rules" in told
    assert "rules-both" in told
    assert tables(rules, "younger") == []
    assert tables(rules, "older") == stood
    # An edit helps, as it says.
    apply(rules, "RoutingPolicy", "younger", policy_spec("rules-own", 50))
    says(rules, "younger", "Ready", "True")
    assert rules.condition("rpol", "younger", "Stalled", NAMESPACE)["status"] == "absent"
    rules.cluster.kubectl("delete", "rpol", "older", "younger", f"--namespace={NAMESPACE}")


def test_two_policies_that_share_an_engine_never_overbook_it(rules: Stage) -> None:
    """60 requests/s each on an engine of 100: it carries 100, 20 are refused, and both policies say so."""
    selector = {"matchLabels": {"engine": "one"}}
    for name in ("left", "right"):
        apply(rules, "RoutingPolicy", name, policy_spec(f"rules-{name}", 60, engineSelector=selector))
    for name in ("left", "right"):
        says(rules, name, "CapacitySufficient", "False")

    def carried() -> float:
        return sum(
            60 * passed(json.loads(one["data"]["table.json"]))
            for name in ("left", "right")
            for one in tables(rules, name)
        )

    await_true(lambda: 99 < carried() <= 100 * (1 + 1e-4), f"it carries 100, not {carried()}", SOON)
    rules.cluster.kubectl("delete", "rpol", "left", "right", f"--namespace={NAMESPACE}")


def passed(table: dict[str, Any]) -> float:
    """The share of a table's requests that are not refused; its only engine gets them all."""
    [model] = table["models"]
    [routes] = model["classes"]
    assert [route["weight"] for route in routes["routes"] if route["weight"]] == [WEIGHT_TOTAL]
    return 1 - sum(shed["share"] for shed in routes.get("shed", ()))
