"""Leaders die, stop and wake, the API server goes away: routers serve on, and only who leads writes."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.cluster import await_true
from support.operator_pods import OperatorPods, written_by
from support.stage import SYSTEM, Load, Stage, rates

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

FRONTENDS = ("fe-us-east", "fe-eu-west")
NEW_LEADER_SECONDS = 200  # a Lease lasts 15 s, the others look every 2 s; ten times that
ROUTERS = "app.kubernetes.io/component=router"


@pytest.fixture
def operators(stage: Stage) -> Iterator[OperatorPods]:
    """The operator's pods; both stand again afterwards."""
    pods = OperatorPods(stage.cluster)
    yield pods
    pods.scale(2)
    await_true(lambda: pods.ready() == 2, "both operators are ready again")


@pytest.fixture
def load(stage: Stage) -> Iterator[Load]:
    with stage.load("availability", rate=rates(), duration=1500) as sending:
        sending.await_first()
        yield sending


def report(what: str, seconds: float) -> None:
    """A figure for people; it is measured on a busy machine, so nothing is asserted of it."""
    sys.stderr.write(f"{what}: {seconds:.1f} s\n")


def identities(stage: Stage) -> dict[str, tuple[int, int]]:
    """(term, revision) of each front-end's table."""
    found = {}
    for name in FRONTENDS:
        identity = stage.table(name)["identity"]
        found[name] = (identity["term"], identity["revision"])
    return found


def nothing_lost(result: dict[str, Any]) -> None:
    counts = result["counts"]
    assert (counts["failed"], counts["notSent"]) == (0, 0), result["failures"]
    assert counts["done"] > 100


def history(stage: Stage) -> list[str]:
    found: list[str] = stage.status().get("history", [])
    return found


def edit(stage: Stage, permille: int) -> None:
    """An edit that is news to a table whatever the load is: the deadband has no say in limits."""
    stage.patch("rpol", "chat", {"spec": {"limits": {"body": f"{permille}Ki"}}})


@contextmanager
def edited(stage: Stage) -> Iterator[None]:
    try:
        yield
    finally:
        stage.patch("rpol", "chat", {"spec": {"limits": None}})


def test_another_leads_when_the_leader_is_killed(stage: Stage, operators: OperatorPods, load: Load) -> None:
    """kill -9 under load: nobody's request fails, terms grow, history goes on where it was."""
    before, told, leader = identities(stage), history(stage), operators.leader()
    operators.kill(leader, signal.SIGKILL)
    began = time.monotonic()
    await_true(lambda: operators.leader() not in ("", leader), "another leads", NEW_LEADER_SECONDS)
    report("kill -9 of the leader to another one's Lease", time.monotonic() - began)
    await_true(lambda: all(term > before[name][0] for name, (term, _) in identities(stage).items()), "its term", 120)
    report("kill -9 of the leader to its term on every table", time.monotonic() - began)
    with edited(stage):
        edit(stage, 3000)
        await_true(lambda: all(now > before[name] for name, now in identities(stage).items()), "it publishes", 120)
        await_true(lambda: all(stage.table(name)["limits"]["body"] == 3000 * 1024 for name in FRONTENDS), "edit", 120)
        after = identities(stage)
    assert all(after[name][1] > before[name][1] for name in FRONTENDS)
    # What was told before stands, in its order: nothing was lost, nothing told twice.
    now = history(stage)
    kept = [line for line in now if line in told]
    assert kept == told[: len(kept)]
    assert len(kept) == min(len(told), 10 - (len(now) - len(kept)))
    assert len(set(now)) == len(now)
    nothing_lost(load.stop())


@pytest.mark.long
def test_a_router_begins_without_an_operator(stage: Stage, operators: OperatorPods) -> None:
    """With the operator at 0 replicas a new router pod takes the table that stands, and serves."""
    operators.scale(0)
    await_true(lambda: not operators.pods(), "no operator is left")
    old = {pod["metadata"]["name"] for pod in stage.pods(ROUTERS, SYSTEM)}
    stage.cluster.kubectl("rollout", "restart", f"--namespace={SYSTEM}", *_routers(), check=True)
    for name in _routers():
        stage.cluster.kubectl("rollout", "status", name, f"--namespace={SYSTEM}", "--timeout=240s")
    new = {pod["metadata"]["name"] for pod in stage.pods(ROUTERS, SYSTEM)}
    assert not new & old
    with stage.load("without", rate=rates(), duration=10) as sending:
        nothing_lost(sending.result(120))


def _routers() -> list[str]:
    return [f"deployment/headrace-router-{name}" for name in FRONTENDS]


@pytest.mark.long
def test_a_leader_that_was_stopped_writes_nothing_on_waking(stage: Stage, operators: OperatorPods, load: Load) -> None:
    """SIGSTOP for 60 s, then SIGCONT: the API server's audit log has no write of that pod from then on."""
    leader = operators.leader()
    operators.kill(leader, signal.SIGSTOP)
    stopped = time.time()
    try:
        await_true(lambda: operators.leader() not in ("", leader), "another leads", NEW_LEADER_SECONDS)
        report("SIGSTOP of the leader to another one's Lease", time.time() - stopped)
        with edited(stage):
            edit(stage, 4000)  # what the stopped one would have told
            await_true(lambda: all(stage.table(n)["limits"]["body"] == 4000 * 1024 for n in FRONTENDS), "edit", 120)
        time.sleep(max(0.0, 60 - (time.time() - stopped)))
    finally:
        restarts = operators.restarts()[leader]
        operators.kill(leader, signal.SIGCONT)
    woken = time.time()
    # It finds its Lease taken and ends; its pod begins again as a standby.
    await_true(lambda: operators.restarts().get(leader, 0) > restarts, "it ended, to begin anew", 120)
    await_true(lambda: operators.ready() == 2, "both are ready", 240)
    audit, now = stage.audit(), operators.leader()
    found = written_by(audit, leader, stopped)
    assert found == [], json.dumps(found[:3])
    assert now != leader
    assert written_by(audit, now, stopped), "what the new leader wrote is found"
    report("SIGCONT to a standby that is ready", time.time() - woken)
    nothing_lost(load.stop())


@pytest.mark.long
def test_the_api_server_is_away_for_100_seconds(stage: Stage, operators: OperatorPods, load: Load) -> None:
    """Routers serve on; the operator resumes by itself, without a restart, and publishes what is edited then."""
    restarts, before = operators.restarts(), identities(stage)
    stage.cluster.api("stop")
    time.sleep(100)
    stage.cluster.api("start")
    began = time.monotonic()
    await_true(lambda: stage.cluster.kubectl("get", "--raw", "/readyz", check=False).returncode == 0, "API server", 240)
    report("start of the API server to /readyz", time.monotonic() - began)
    with edited(stage):
        edit(stage, 5000)
        await_true(lambda: all(stage.table(n)["limits"]["body"] == 5000 * 1024 for n in FRONTENDS), "edit", 240)
        report("start of the API server to an edit that is published", time.monotonic() - began)
    assert operators.restarts() == restarts
    assert all(now > before[name] for name, now in identities(stage).items())
    nothing_lost(load.stop())
