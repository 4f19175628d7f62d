"""Engines change under load: scaled, killed, drained. Weights follow, the policy says why, and no request is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster import await_true
from support.stage import INFERENCE, SYSTEM, Load, Stage, rates

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

SCALED, KILLED, DRAINED = "h200-eastus", "h200-westeurope", "b200-westus2"
EDITS = 5
ROUTERS = "app.kubernetes.io/component=router"
US, EU = "fe-us-east", "fe-eu-west"


@pytest.fixture
def load(stage: Stage) -> Iterator[Load]:
    """The sample's own demand, until the test stops it; weights have settled on it."""
    with stage.load("changes", rate=rates(), duration=1500) as sending:
        sending.await_first()
        await_true(lambda: stage.weights(US).get(DRAINED, 0) > 0.05, "the load is seen and shared", 120)
        yield sending


def lines(stage: Stage, part: str) -> list[str]:
    found: list[str] = stage.status().get(part, [])
    return found


def lost(result: dict[str, Any]) -> int:
    """Requests that failed in another way than after their first byte."""
    counts = result["counts"]
    found: int = counts["failed"] - counts["cut"] + counts["notSent"]
    return found


def test_edits_reach_every_router_and_nothing_is_restarted(stage: Stage, load: Load) -> None:
    """How long that takes is for `make bench-cluster` to say."""
    routers = stage.pods(ROUTERS, SYSTEM)
    assert len(routers) > 2
    try:
        for body in range(33, 33 + EDITS):
            stage.patch("rpol", "chat", {"spec": {"limits": {"body": f"{body}Mi"}}})
            await_true(lambda body=body: all_limits(stage) == {body << 20}, "the edit is in both tables", 60)
            wanted = {name: stage.table(name)["identity"]["revision"] for name in (US, EU)}
            await_true(lambda wanted=wanted: all_applied(stage, routers, wanted), "every router applied it", 60)
    finally:
        stage.patch("rpol", "chat", {"spec": {"limits": None}})
    assert restarts(stage.pods(ROUTERS, SYSTEM)) == restarts(routers)
    result = load.stop()
    assert lost(result) == result["counts"]["cut"] == 0, result["failures"]


def all_limits(stage: Stage) -> set[int]:
    return {stage.table(name)["limits"]["body"] for name in (US, EU)}


def all_applied(stage: Stage, routers: list[dict[str, Any]], wanted: dict[str, int]) -> bool:
    """Whether every router uses its front-end's revision, or a later one."""
    for pod in routers:
        metadata = pod["metadata"]
        place = f"/api/v1/namespaces/{SYSTEM}/pods/{metadata['name']}:9090/proxy/readyz"
        [told] = json.loads(stage.cluster.kubectl("get", "--raw", place).stdout)["tables"]
        if told["revision"] < wanted[metadata["labels"]["headrace.dev/frontend"]]:
            return False
    return True


def restarts(pods: list[dict[str, Any]]) -> dict[str, int]:
    return {
        pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"]["containerStatuses"]) for pod in pods
    }


def test_weights_follow_the_replicas_and_nothing_is_lost(stage: Stage, load: Load) -> None:
    before = stage.weights(US)[SCALED]
    try:
        stage.scale(SCALED, 1)
        told: set[str] = set()

        def gave_way() -> bool:
            told.update(lines(stage, "history"))
            return stage.weights(US).get(SCALED, 0) < before - 0.15

        await_true(gave_way, f"{SCALED} gets less than {before}", 120)
        assert stage.resource("ieng", SCALED)["status"]["readyReplicas"] == 1
        await_true(
            lambda: any("capacity" in line and SCALED in line for line in [*told, *lines(stage, "history")]),
            "history says why",
            60,
        )
        small = stage.weights(US).get(SCALED, 0)
    finally:
        stage.scale(SCALED, 3)
    halfway = (before + small) / 2
    await_true(lambda: stage.weights(US).get(SCALED, 0) > halfway, f"it gets more than {halfway} again", 120)
    result = load.stop()
    assert lost(result) == result["counts"]["cut"] == 0, result["failures"]
    assert result["counts"]["done"] > 500


def test_a_killed_pod_takes_only_the_streams_that_it_had_begun(stage: Stage, load: Load) -> None:
    [pod] = stage.engine_pods(KILLED)
    stage.cluster.kubectl("delete", "pod", pod, f"--namespace={INFERENCE}", "--grace-period=0", "--force")
    await_true(lambda: stage.engine_pods(KILLED) != [pod], "it is replaced")
    await_true(lambda: stage.resource("ieng", KILLED)["status"].get("readyReplicas") == 1, "the new one is ready", 120)
    await_true(lambda: stage.weights(EU).get(KILLED, 0) > 0.3, "it has its part again", 120)
    running = 64  # the most that one replica works on at once
    result = load.stop()
    assert lost(result) == 0, result["failures"]
    assert result["counts"]["cut"] <= running, result["failures"]


def test_a_drained_engine_gets_nothing_and_the_policy_says_so(stage: Stage, load: Load) -> None:
    def asked() -> int:
        return sum(engines[DRAINED] for engines in stage.asked().values())

    try:
        stage.patch("ieng", DRAINED, {"spec": {"state": "Draining"}})
        await_true(lambda: DRAINED not in {*stage.weights(US), *stage.weights(EU)}, f"{DRAINED} has no weight", 120)
        await_true(lambda: any(DRAINED in line and "rain" in line for line in lines(stage, "why")), "why says so", 60)

        def still() -> bool:
            first = asked()
            return first == asked()

        await_true(still, "nothing arrives there any more", 60)
    finally:
        stage.patch("ieng", DRAINED, {"spec": {"state": "Active"}})
    await_true(lambda: stage.weights(US).get(DRAINED, 0) > 0.05, "it has its part again", 120)
    result = load.stop()
    assert lost(result) == result["counts"]["cut"] == 0, result["failures"]
