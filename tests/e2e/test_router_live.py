"""A router process on a real API server, with a service account's token and the least rights."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_api.table import RoutingTable
from support.audit import asked_by
from support.cluster import Cluster, await_true
from support.live_router import (
    ACCOUNT,
    NAMESPACE,
    RULES,
    Inside,
    LiveRouter,
    apply,
    engines,
    publish,
    role,
)
from support.router_pod import services_table
from support.router_table import SESSION, table_bytes

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

HEARTBEAT = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "headrace-heartbeat", "namespace": NAMESPACE},
}
EDITS = 50


def table(revision: int, **fields: Any) -> RoutingTable:
    fields = {"affinity": SESSION, "model": "llama-3.1-70b", "namespace": NAMESPACE} | fields
    made = services_table({"sim": ("sim", 8000, 1)}, revision=revision, **fields)
    moved = table_bytes(made).replace(b'"inference', b'"' + NAMESPACE.encode())
    return msgspec.json.decode(moved, type=RoutingTable)


def measured(cluster: Cluster, *arguments: str) -> Any:
    with Inside(cluster, sys.executable, "-m", "support.live_edits", *arguments) as edits:
        said, _ = edits.process.communicate(timeout=240)
        assert edits.process.returncode == 0, said
    return json.loads(said)


def tell(figure: str) -> None:
    """Figures of the report: pytest shows them with -rA."""
    sys.stdout.write(f"{figure}\n")


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Iterator[Cluster]:
    bare.load("lab")
    bare.kubectl("create", "namespace", NAMESPACE)
    bare.kubectl("create", "serviceaccount", ACCOUNT, f"--namespace={NAMESPACE}")
    apply(bare, *role("tables"), *role("services"), *engines(2))
    bare.kubectl("rollout", "status", "deployment/sim", f"--namespace={NAMESPACE}", "--timeout=240s")
    try:
        yield bare
    finally:
        bare.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def router(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRouter]:
    made = LiveRouter(cluster, tmp_path_factory.mktemp("router"), 18080)
    try:
        publish(cluster, table(1))
        yield made.serves()
    finally:
        made.close()


def test_it_waits_for_its_table_and_serves_from_pods(router: LiveRouter) -> None:
    told = router.detail()
    assert (told["tables"][0]["from"], told["tables"][0]["api"]) == ("watch", None)
    assert told["services"]["watched"] == {NAMESPACE: None}
    router.until(lambda: router.metric("headrace_endpoints") == 2, "both pods are used")
    assert router.answers()
    assert told["operator"]["state"] == "unknown"


def test_publications_are_applied_by_the_watch(cluster: Cluster, router: LiveRouter) -> None:
    """From the write's beginning to the swap; how long that took is a figure of the report."""
    admin = f"http://127.0.0.1:{router.port + 1}"
    took = sorted(measured(cluster, "edits", NAMESPACE, "headrace-chat-fe-a", admin, str(EDITS)))
    assert len(took) == EDITS
    tell(f"publication -> applied: median {took[EDITS // 2]:.0f} ms, 95th {took[EDITS * 95 // 100]:.0f} ms")
    assert router.table()["revision"] == 1 + EDITS


def test_a_pod_that_ends_is_out_at_once_and_no_request_is_lost(cluster: Cluster, router: LiveRouter) -> None:
    """REL-04 (https://github.com/vllm-project/production-stack/issues/680), with the openai package streaming."""
    url = f"http://127.0.0.1:{router.port}"
    with Inside(cluster, sys.executable, "-m", "support.live_load", url, "6") as load:
        router.until(lambda: router.metric("headrace_in_flight_requests") > 0, "requests run")
        admin = f"http://127.0.0.1:{router.port + 1}"
        tell(f"pod deleted -> out of use: {1000 * measured(cluster, 'pod', NAMESPACE, admin):.0f} ms")
        router.until(lambda: router.metric("headrace_endpoints") == 2, "the pod's successor is used")
        for replicas in (1, 2):
            cluster.kubectl("scale", "deployment/sim", f"--namespace={NAMESPACE}", f"--replicas={replicas}")
            router.until(lambda count=replicas: router.metric("headrace_endpoints") == count, f"{replicas} are used")
        told = json.loads(load.end())
    tell(f"{told['whole']} streams")
    assert told["failures"] == 0, told
    assert told["whole"] > 20
    router.until(lambda: router.metric("headrace_in_flight_requests") == 0, "nothing is in flight")


def test_a_deleted_configmap_leaves_the_last_table(cluster: Cluster, router: LiveRouter) -> None:
    """REL-05 (https://github.com/jaegertracing/jaeger-operator/pull/1467)."""
    cluster.kubectl("delete", "configmap", "headrace-chat-fe-a", f"--namespace={NAMESPACE}")
    router.until(lambda: "does not exist" in str(router.table()["note"]), "it says so")
    assert router.detail()["ready"]
    assert router.answers()
    publish(cluster, table(100))
    router.until(lambda: router.table().get("revision") == 100, "and goes on")


def test_rights_that_are_taken_away_and_given_back(cluster: Cluster, router: LiveRouter) -> None:
    """It falls back to the mounted file, says so, and comes back; pods stay in use by what was known of them."""
    before = router.table()["revision"]
    cluster.kubectl("delete", "rolebinding", "tables", "services", f"--namespace={NAMESPACE}")
    router.until(lambda: "403" in str(router.table()["api"]), "the table can't be watched")
    router.until(lambda: "403" in str(router.detail()["services"]["watched"]), "nor can the Services")
    assert router.answers()
    mounted = router.fallback / NAMESPACE / "headrace-chat-fe-a" / "table.json"
    mounted.parent.mkdir(parents=True)
    mounted.write_bytes(table_bytes(table(before + 1)))
    router.until(lambda: router.table().get("revision") == before + 1, "the file is read")
    assert router.table()["from"] == "file"
    assert router.metric("headrace_table_watched") == 0
    assert router.answers()
    apply(cluster, *role("tables"), *role("services"), HEARTBEAT)
    publish(cluster, table(before + 2))
    router.until(lambda: router.table().get("revision") == before + 2, "the watch is back")
    router.until(lambda: router.detail()["services"]["watched"] == {NAMESPACE: None}, "the other too")
    assert router.metric("headrace_table_watched") == 1


@pytest.mark.long
def test_an_api_server_that_goes_and_comes_back(cluster: Cluster, router: LiveRouter) -> None:
    """Requests are served all the while, and a router that starts meanwhile serves by the mounted file."""
    url = f"http://127.0.0.1:{router.port}"
    with Inside(cluster, sys.executable, "-m", "support.live_load", url, "2") as load:
        cluster.api("stop")
        try:
            router.until(lambda: router.table()["api"] is not None, "it says so")
            assert router.detail()["ready"]
        finally:
            cluster.api("start")
        await_true(lambda: cluster.kubectl("get", "--raw=/readyz", check=False).returncode == 0, "the API is back")
        publish(cluster, table(200))
        router.until(lambda: router.table().get("revision") == 200, "the watch is back without a restart")
        told = json.loads(load.end())
    assert told["failures"] == 0, told


@pytest.mark.long
def test_an_old_version_is_answered_by_410_and_listed_anew(cluster: Cluster, router: LiveRouter) -> None:
    """410 arrives as HTTP 200 with an ERROR event; a server that was restarted knows no versions of before."""
    ca = str(router.token.with_name("ca.crt"))
    server = cluster.kubectl("config", "view", "--output=jsonpath={.clusters[0].cluster.server}").stdout
    assert measured(cluster, "relist", server, str(router.token), ca, NAMESPACE) == {"lists": 1, "found": 1}


def test_without_rights_to_slices_pods_are_found_by_name(cluster: Cluster, tmp_path: Path) -> None:
    """The cluster's DNS, as a pod's resolv.conf names it."""
    resolver = cluster.get("service", "kube-dns", "--namespace=kube-system")["spec"]["clusterIP"]
    resolv = tmp_path / "resolv.conf"
    resolv.write_text(f"nameserver {resolver}\nsearch {NAMESPACE}.svc.cluster.local svc.cluster.local cluster.local\n")
    cluster.kubectl("delete", "rolebinding", "services", f"--namespace={NAMESPACE}")
    script = f"mount --bind {shlex.quote(str(resolv))} /etc/resolv.conf && exec " + '"$@"'
    made = LiveRouter(cluster, tmp_path, 18090, "unshare", "--mount", "sh", "-c", script, "sh")
    try:
        made.serves()
        made.until(lambda: made.metric("headrace_endpoints") == 1, "the Service's own address is used")
        assert made.detail()["services"]["byName"] == 1
        assert made.answers()
        apply(cluster, *role("services"))
        made.until(lambda: made.metric("headrace_endpoints") == 2, "its pods are, once slices are told")
        assert made.answers()
        assert made.end() == 0
    finally:
        made.close()


def test_what_was_asked_is_what_is_granted_and_the_token_is_told_nowhere(cluster: Cluster, router: LiveRouter) -> None:
    asked = asked_by(cluster.audit().splitlines(), f"{NAMESPACE}:{ACCOUNT}")
    granted = {
        (verb, resource)
        for rules in RULES.values()
        for rule in rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert {(one.verb, one.resource) for one in asked} == granted
    told = router.log() + router.page("/metrics") + router.page("/readyz")
    assert router.token.read_text().strip() not in told
    assert router.end() == 0
