"""Operator processes on a real API server: from manifests to tables and statuses, and from leader to leader."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.engine_manifests import engine_dict, policy_dict
from support.live_operator import NAMESPACE, RULES, LiveOperator, clean, prepare, role, writes

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

TABLE = "headrace-chat-fe-a"
PAGES = (
    "env",
    f"PYTHONPATH={ROOT / 'tests'}",
    sys.executable,
    "-m",
    "support.engine_pages",
    "127.0.0.1",
    "29200",
    "1",
    "1",
)
OUTAGE_SECONDS = 30.0  # twice what a Lease holds


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Iterator[Cluster]:
    """The bare cluster with our types; nothing of it is left behind."""
    prepare(bare)
    try:
        yield bare
    finally:
        clean(bare)


@pytest.fixture(scope="module")
def operators(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveOperator, LiveOperator]]:
    folder = tmp_path_factory.mktemp("operators")
    made = tuple(LiveOperator(cluster, f"op-{name}", folder, port) for name, port in (("a", 9101), ("b", 9102)))
    made[0].start()
    await_true(made[0].leads, f"the first leads\n{made[0].log()}")
    made[1].start()
    try:
        yield made[0], made[1]
    finally:
        for one in made:
            one.end()


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, operators: tuple[LiveOperator, LiveOperator]) -> Cluster:
    """A cluster with a policy over two engines, in force."""
    apply(cluster, engine_dict("a", "http://127.0.0.1:1"), engine_dict("b", "http://127.0.0.1:2"), policy_dict())
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "--namespace=inf", "rpol/chat")
    return cluster


def report(what: str, seconds: float) -> None:
    """A figure for people; it is measured on a busy machine, so nothing is asserted of it."""
    sys.stderr.write(f"{what}: {seconds:.1f} s\n")


def apply(cluster: Cluster, *manifests: dict[str, Any]) -> None:
    cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(manifests))


def policy(cluster: Cluster, name: str = "chat") -> Any:
    return cluster.get("rpol", name, "--namespace=inf")


def table(cluster: Cluster, name: str = TABLE) -> Any:
    return json.loads(cluster.get("configmap", name, "--namespace=inf")["data"]["table.json"])


def condition(resource: Any, kind: str) -> tuple[str, str]:
    found = [one for one in resource.get("status", {}).get("conditions", ()) if one["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def settled(cluster: Cluster, name: str = "chat") -> bool:
    found = policy(cluster, name)
    return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])


def in_namespace(namespace: str, *manifests: dict[str, Any]) -> list[dict[str, Any]]:
    return [one | {"metadata": one["metadata"] | {"namespace": namespace}} for one in manifests]


@pytest.mark.long
def test_namespaces_that_are_watched_later_are_served_whole(cluster: Cluster, tmp_path: Path) -> None:
    """``watchNamespaces`` widened while it runs: tables, statuses and heartbeats there, and what is deleted there."""
    spaces = ("wide-ops", "wide-a", "wide-b")
    for space in spaces:
        cluster.kubectl("create", "namespace", space)
    pages = subprocess.Popen(cluster_command(cluster.name, "exec", *PAGES), stdin=subprocess.DEVNULL)
    for space in spaces[1:]:
        # What begins to be watched while the operator runs is judged by readings at once.
        of_its_own = policy_dict(frontends=[{"name": f"fe-{space}", "demand": {"requestsPerSecond": 60}}])
        apply(cluster, *in_namespace(space, engine_dict("a", "http://127.0.0.1:29200"), of_its_own))
    config = tmp_path / "operator.yaml"
    config.write_text("watchNamespaces: [wide-a]\n")
    one = LiveOperator(cluster, "op-wide", tmp_path, 9103, "wide-ops")
    waiting = ["wait", "--for=condition=Ready", "--timeout=120s", "rpol/chat"]
    there = ["configmap", "headrace-chat-fe-wide-b", "--namespace=wide-b"]

    def table_there() -> bool:
        return cluster.kubectl("get", *there, check=False).returncode == 0

    try:
        one.start("--config", str(config))
        cluster.kubectl(*waiting, "--namespace=wide-a")
        assert "status" not in cluster.get("rpol", "chat", "--namespace=wide-b")
        config.write_text("watchNamespaces: [wide-a, wide-b]\n")
        cluster.kubectl(*waiting, "--namespace=wide-b")
        for space in spaces[1:]:
            assert cluster.get("lease", "headrace-heartbeat", f"--namespace={space}")
        cluster.kubectl("delete", *there)
        await_true(table_there, f"what is deleted there is made again\n{one.log()}")
        assert one.process.poll() is None
        assert "Traceback" not in one.log()
    finally:
        one.end()
        pages.kill()
        pages.wait()
        cluster.kubectl("delete", "namespace", *spaces, "--timeout=120s")


def test_what_is_applied_is_published_and_told(fleet: Cluster) -> None:
    found = policy(fleet)
    assert condition(found, "Ready") == ("True", "Published")
    assert found["status"]["summary"]["revision"] == 1
    published = table(fleet)
    assert published["identity"] == {"uid": found["metadata"]["uid"], "term": 1, "revision": 1}
    assert condition(fleet.get("ieng", "a", "--namespace=inf"), "Ready") == ("True", "Accepted")


def test_nothing_of_ours_stands_on_resources(fleet: Cluster) -> None:
    """Case SHU-04: no finalizer that only we could take away, no annotation that Git does not know.

    https://github.com/zalando-incubator/kopf/issues/75
    """
    for kind in ("rpol", "ieng"):
        for one in fleet.get(kind, "--namespace=inf")["items"]:
            assert "finalizers" not in one["metadata"]
            kubectls = {"kubectl.kubernetes.io/last-applied-configuration"}
            assert set(one["metadata"].get("annotations", {})) <= kubectls


def test_an_edit_is_seen_and_its_editor_named(fleet: Cluster) -> None:
    before = table(fleet)["identity"]["revision"]
    patch = {"spec": {"capacity": {"perReplica": {"requestsPerSecond": 30}}}}
    fleet.kubectl("patch", "ieng", "a", "--namespace=inf", "--type=merge", f"--patch={json.dumps(patch)}")
    await_true(lambda: table(fleet)["identity"]["revision"] > before, "a new revision", seconds=60)
    await_true(lambda: "kubectl patch" in policy(fleet)["status"]["history"][0], "history names the editor", seconds=60)


def test_a_status_that_somebody_takes_away_comes_back(fleet: Cluster) -> None:
    """Whole, without an edit or a change of weights, and written once."""
    before = policy(fleet)
    since = len([one for one in written(fleet) if one.endswith("routingpolicies/chat")])
    fleet.kubectl(
        "patch", "rpol", "chat", "--namespace=inf", "--subresource=status", "--type=merge", '--patch={"status":null}'
    )
    await_true(lambda: policy(fleet).get("status") == before["status"], "it is there again", seconds=60)
    now = [one for one in written(fleet) if one.endswith("routingpolicies/chat")]
    assert len(now) == since + 1


def written(cluster: Cluster) -> list[str]:
    """Resource and name of what the first operator wrote, oldest first."""
    return [f"{one['objectRef']['resource']}/{one['objectRef'].get('name')}" for one in writes(cluster, "op-a")]


def test_an_engine_that_the_api_admits_and_we_refuse(fleet: Cluster) -> None:
    """Case CRD-01: one that was valid under another version of the CRD keeps its last valid spec, and says so.

    https://github.com/apache/flink-kubernetes-operator/pull/196
    """
    crd = ROOT / "crds" / "inferenceengines.headrace.dev.yaml"
    loose = yaml.safe_load(crd.read_text())
    schema = loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema.pop("x-kubernetes-validations", None)
    fleet.kubectl("replace", "--filename=-", stdin=yaml.safe_dump(loose))
    bad = copy.deepcopy(engine_dict("a", "http://127.0.0.1:1"))
    bad["spec"]["capacity"] = {"perSecond": 12}
    stranger = engine_dict("stranger", "http://127.0.0.1:9") | {"spec": {"url": "http://127.0.0.1:9"}}
    weights = table(fleet)["models"]
    try:
        # The API server takes a moment until it judges by the new schema.
        await_true(
            lambda: fleet.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(bad), check=False).returncode == 0,
            "admitted",
        )
        apply(fleet, stranger)

        def refused(name: str) -> bool:
            return condition(fleet.get("ieng", name, "--namespace=inf"), "Stalled") == ("True", "InvalidSpec")

        await_true(lambda: refused("a") and refused("stranger"), "both are told", seconds=60)
        found = fleet.get("ieng", "a", "--namespace=inf")
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        said = next(one["message"] for one in found["status"]["conditions"] if one["type"] == "Ready")
        assert "the last valid spec stays in force" in said
        # A server that changes its schema may have pruned the unknown field: then it is the one that is missing.
        assert "spec.capacity" in said
        assert table(fleet)["models"] == weights
    finally:
        fleet.kubectl("delete", "ieng", "stranger", "--namespace=inf")
        apply(fleet, engine_dict("a", "http://127.0.0.1:1"))
        fleet.kubectl("replace", f"--filename={crd}")
    await_true(lambda: condition(fleet.get("ieng", "a", "--namespace=inf"), "Stalled") == ("", ""), "it is right again")


def test_a_policy_that_goes_takes_its_tables_along(fleet: Cluster) -> None:
    apply(fleet, policy_dict("brief"))
    await_true(lambda: settled(fleet, "brief"), "it is told", seconds=60)
    fleet.kubectl("delete", "rpol", "brief", "--namespace=inf", "--timeout=20s")

    def gone() -> bool:
        names = [one["metadata"]["name"] for one in fleet.get("configmaps", "--namespace=inf")["items"]]
        return not any(name.startswith("headrace-brief-") for name in names)

    await_true(gone, "its tables are gone", seconds=60)


def test_a_permission_that_is_lost_deletes_nothing(
    fleet: Cluster, operators: tuple[LiveOperator, LiveOperator]
) -> None:
    """Lost RBAC must not look like a deletion, and is said in words (the API page, Mass loss)."""
    leader, _ = in_roles(operators)
    before = table(fleet)
    without = [rule for rule in RULES if rule["resources"] != ["inferenceengines", "routingpolicies"]]
    fleet.kubectl("apply", "--filename=-", stdin=role(without))
    try:
        await_true(lambda: "right would be a role that may get, list and watch it" in leader.log(), "it is said")
        assert leader.get("/healthz")[0] == 200
        assert table(fleet) == before
    finally:
        fleet.kubectl("apply", "--filename=-", stdin=role(RULES))
    await_true(lambda: "can be read again" in leader.log(), "it is read again")
    patch = {"spec": {"objective": {"moveCost": "100ms"}}}
    fleet.kubectl("patch", "rpol", "chat", "--namespace=inf", "--type=merge", f"--patch={json.dumps(patch)}")
    await_true(lambda: settled(fleet), "edits are seen again")
    assert leader.process.poll() is None
    assert "Traceback" not in leader.log()


def in_roles(operators: tuple[LiveOperator, LiveOperator]) -> tuple[LiveOperator, LiveOperator]:
    """Leader and standby, as they are when both are ready."""
    for one in operators:
        await_true(lambda one=one: one.get("/readyz")[0] == 200, f"{one.name} is ready")
    first, second = operators
    return (first, second) if first.leads() else (second, first)


def test_a_standby_is_alive_and_ready(operators: tuple[LiveOperator, LiveOperator]) -> None:
    leader, standby = in_roles(operators)
    assert standby.get("/readyz")[1].startswith(f"standby; {leader.name}_")
    assert standby.get("/healthz")[0] == 200
    assert "headrace_operator_leading 0.0" in standby.get("/metrics")[1]


def test_a_leader_that_is_killed_is_followed(fleet: Cluster, operators: tuple[LiveOperator, LiveOperator]) -> None:
    first, second = in_roles(operators)
    before, history = table(fleet), policy(fleet)["status"]["history"]
    first.end()
    began = time.monotonic()
    await_true(lambda: table(fleet)["identity"]["term"] > before["identity"]["term"], "the second takes over")
    report("takeover after kill -9", time.monotonic() - began)
    after = table(fleet)
    assert after["identity"] == before["identity"] | {"term": before["identity"]["term"] + 1}
    assert after["models"] == before["models"]
    assert policy(fleet)["status"]["history"] == history
    first.start()
    await_true(lambda: first.get("/readyz")[0] == 200, "the old leader is a standby")
    assert second.leads()


@pytest.mark.long
def test_a_leader_that_was_stopped_writes_nothing_on_waking(
    fleet: Cluster, operators: tuple[LiveOperator, LiveOperator]
) -> None:
    leader, _ = in_roles(operators)
    term = table(fleet)["identity"]["term"]
    leader.signal(signal.SIGSTOP)
    await_true(lambda: table(fleet)["identity"]["term"] > term, "the other takes over")
    before = len(list(writes(fleet, leader.name)))
    after = table(fleet)["identity"]
    leader.signal(signal.SIGCONT)
    assert leader.wait() == 3
    assert "the Lease was lost: another operator leads" in leader.log()
    assert len(list(writes(fleet, leader.name))) == before
    assert table(fleet)["identity"] == after
    assert "Traceback" not in leader.log()
    leader.start()
    await_true(lambda: leader.get("/readyz")[0] == 200, "it is a standby again")


def test_sigterm_gives_the_lease_back(fleet: Cluster, operators: tuple[LiveOperator, LiveOperator]) -> None:
    """Case SHU-05: a rolling update waits for nobody who is gone.

    https://github.com/nolar/kopf/issues/734
    """
    first, second = in_roles(operators)
    term = table(fleet)["identity"]["term"]
    first.signal(signal.SIGTERM)
    assert first.wait(25) == 0, first.log()
    await_true(lambda: table(fleet)["identity"]["term"] > term, "the second leads")
    assert second.leads()
    assert "the Lease was not given back" not in first.log()
    first.start()


@pytest.mark.long
def test_an_api_server_that_is_away_is_outlived(fleet: Cluster, operators: tuple[LiveOperator, LiveOperator]) -> None:
    """For longer than the Lease holds; nobody starts anew, and edits are seen afterwards (100 s were tried as well)."""
    in_roles(operators)
    fleet._run("api", "stop")
    began = time.monotonic()
    await_true(lambda: time.monotonic() - began > OUTAGE_SECONDS, "a while goes by")
    healthy = [one.get("/healthz") for one in operators]
    fleet._run("api", "start", check=False)
    await_true(lambda: fleet.kubectl("get", "ns", check=False).returncode == 0, "the API server is back")
    assert [code for code, _ in healthy] == [200, 200], healthy
    back = time.monotonic()
    patch = {"spec": {"objective": {"moveCost": "150ms"}}}
    fleet.kubectl("patch", "rpol", "chat", "--namespace=inf", "--type=merge", f"--patch={json.dumps(patch)}")
    try:
        await_true(lambda: settled(fleet), "an edit after the outage is seen")
    finally:
        for one in operators:
            sys.stderr.write(f"{one.name}: {one.get('/healthz')}\n{one.log()[-3000:]}\n")
    report("an edit after the outage was seen", time.monotonic() - back)
    for one in operators:
        assert one.process.poll() is None, one.log()
        assert "Traceback" not in one.log()


@pytest.mark.long
def test_a_lease_that_is_made_anew_never_lowers_the_term(
    fleet: Cluster, operators: tuple[LiveOperator, LiveOperator]
) -> None:
    in_roles(operators)
    term = table(fleet)["identity"]["term"]
    fleet.kubectl("delete", "lease", "headrace-operator", f"--namespace={NAMESPACE}")
    await_true(lambda: any(one.process.poll() == 3 for one in operators), "the leader ends")
    await_true(lambda: table(fleet)["identity"]["term"] > term, "the other leads under a later term")
