"""What a GitOps tool sees of a real API server with the operator on it: no diffs, edits attributed, freezes kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import maximal
from support.checkout import ROOT
from support.cluster import Cluster, await_true, cluster_command
from support.cluster_operator import headrace, leading_operator

pytestmark = pytest.mark.timeout(2700)  # with nothing cached all of Kubernetes is compiled

ARGO = ("--server-side", "--field-manager=argocd-controller")
CLASSIC = str(ROOT / "manifests" / "samples" / "classic")
POLICY = ("rpol", "classic", "--namespace=inference")


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Iterator[Cluster]:
    """The bare cluster with our types; what is applied goes with its namespaces."""
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        bare.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={crd}")
    bare.established()
    bare.kubectl("create", "namespace", "inference", check=False)
    try:
        yield bare
    finally:
        bare.kubectl("delete", "namespace", "inference", "found", "--ignore-not-found", "--timeout=120s")


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The operator beside the cluster, as its leader; the path of its log."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with leading_operator(cluster, log):
        yield log


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, ...]]:
    """How each set of manifests of ours is named to kubectl; also those of every field."""
    every_field = tmp_path_factory.mktemp("maximal") / "maximal.yaml"
    every_field.write_text(maximal.text())
    return [
        (f"--filename={CLASSIC}",),
        ("--kustomize", str(ROOT / "manifests" / "samples" / "cluster")),
        (f"--filename={every_field}",),
    ]


@pytest.fixture(scope="module")
def settled(cluster: Cluster, operator: Path, manifests: list[tuple[str, ...]]) -> Cluster:
    """The cluster after a reconcile of everything that was applied."""
    for which in manifests:
        cluster.kubectl("apply", *which)
    await_true(lambda: all(judged(cluster)), "every resource judged")
    return cluster


@pytest.fixture(scope="module")
def classic(settled: Cluster) -> Cluster:
    """The cluster with the classic sample alone: other samples' engines serve its model too."""
    kept = {path: yaml.safe_load_all(path.read_text()) for path in Path(CLASSIC).iterdir()}
    names = {(raw["kind"], raw["metadata"]["name"]) for documents in kept.values() for raw in documents}
    others = [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in settled.get("rpol,ieng", "--namespace=inference")["items"]
        if (item["kind"], item["metadata"]["name"]) not in names
    ]
    settled.kubectl("delete", "--namespace=inference", *others)
    await_true(lambda: "fe-b: b 83 %, c 17 %" in settled.get(*POLICY)["status"].get("weights", []), "classic weights")
    return settled


def judged(cluster: Cluster) -> list[bool]:
    """Of each of our resources, whether its status speaks of its spec."""
    return [
        item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
        for item in cluster.get("rpol,ieng", "--all-namespaces")["items"]
    ]


def diff(cluster: Cluster, *arguments: str) -> str:
    found = cluster.kubectl("diff", *arguments, check=False)
    assert found.returncode in (0, 1), found.stderr
    return found.stdout


def history(cluster: Cluster) -> list[str]:
    return list(cluster.get(*POLICY)["status"].get("history", []))


def newest(cluster: Cluster, told: str) -> bool:
    lines = history(cluster)
    return bool(lines) and told in lines[0]


def test_after_a_reconcile_nothing_that_was_applied_differs(settled: Cluster, manifests: list[tuple[str, ...]]) -> None:
    """The API page: Argo CD compares like this; a default that the API server fills into a list would show for ever."""
    told = {
        (which, how): diff(settled, *how, *which)
        for which in manifests
        for how in ((), ARGO)
        if diff(settled, *how, *which)
    }
    assert told == {}
    generations = {item["metadata"]["generation"] for item in settled.get("rpol,ieng", "--all-namespaces")["items"]}
    assert generations == {1}


def lacking(wanted: Any, there: Any, path: str = "") -> list[str]:
    """Paths of what a manifest says and the API server does not hold, or holds as something else."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return [
            found
            for key, value in wanted.items()
            for found in (lacking(value, there[key], f"{path}.{key}") if key in there else [f"{path}.{key}"])
        ]
    if isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        pairs = enumerate(zip(wanted, there, strict=True))
        return [found for index, pair in pairs for found in lacking(*pair, f"{path}[{index}]")]
    return [] if wanted == there else [path]


def test_the_api_server_holds_every_word_of_a_manifest(settled: Cluster) -> None:
    """Seen with a real Argo CD: it compares with Git itself, so that a type was OutOfSync for ever over a ``properties:
    {}`` that the API server had dropped, while both kinds of kubectl diff were empty."""
    crds = [yaml.safe_load(crd.read_text()) for crd in sorted((ROOT / "crds").glob("*.yaml"))]
    classic = [raw for path in Path(CLASSIC).iterdir() for raw in yaml.safe_load_all(path.read_text())]
    for raw in (*crds, *classic, *maximal.manifests()):
        metadata = raw["metadata"]
        where = [f"--namespace={metadata['namespace']}"] if "namespace" in metadata else []
        assert lacking(raw, settled.get(raw["kind"], metadata["name"], *where)) == [], metadata["name"]


def test_what_argo_cd_applied_does_not_differ_either(settled: Cluster, manifests: list[tuple[str, ...]]) -> None:
    for which in manifests:
        settled.kubectl("apply", *ARGO, "--force-conflicts", *which)
        assert diff(settled, *ARGO, *which) == ""
    types = ["--filename=" + str(crd) for crd in sorted((ROOT / "crds").glob("*.yaml"))]
    assert [diff(settled, *ARGO, "--force-conflicts", name) for name in types] == ["", ""]


def test_the_operator_owns_nothing_of_what_users_write(settled: Cluster) -> None:
    """No annotation, label or finalizer of the operator's on users' resources: it writes the status, and that alone."""
    for item in settled.get("rpol,ieng", "--all-namespaces", "--show-managed-fields")["items"]:
        metadata = item["metadata"]
        assert "finalizers" not in metadata
        ours = [entry for entry in metadata["managedFields"] if entry["manager"] == "headrace-operator"]
        assert [(entry.get("subresource"), set(entry["fieldsV1"])) for entry in ours] == [("status", {"f:status"})]


def test_edits_are_attributed(classic: Cluster, tmp_path: Path) -> None:
    """The testing page: kubectl apply, kubectl edit, a sync and a self-heal of Argo CD (here by its field manager)."""
    policy = yaml.safe_load((Path(CLASSIC) / "policy.yaml").read_text())
    classic.kubectl("apply", *ARGO, "--force-conflicts", f"--filename={CLASSIC}")
    edit = ("env", "KUBE_EDITOR=sed -i s/60ms/5ms/", "kubectl", "edit", *POLICY)
    subprocess.run(cluster_command(classic.name, "exec", *edit), check=True, capture_output=True, timeout=60)
    await_true(lambda: newest(classic, "network 100 % (classic by kubectl edit)"), "kubectl edit in history")
    healed = tmp_path / "policy.yaml"
    policy["metadata"]["annotations"] = {"headrace.dev/git-revision": "3f2a91c0" * 5}
    healed.write_text(json.dumps(policy))
    classic.kubectl("apply", *ARGO, "--force-conflicts", f"--filename={healed}")
    await_true(lambda: newest(classic, "network 100 % (classic by Argo CD at 3f2a91c)"), "Argo CD in history")
    policy["spec"]["network"]["roundTrip"][1]["latency"] = "4ms"
    healed.write_text(json.dumps(policy))
    classic.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={healed}")
    await_true(lambda: newest(classic, "network 100 % (classic by kubectl apply)"), "kubectl apply in history")
    classic.kubectl("apply", *ARGO, "--force-conflicts", f"--filename={CLASSIC}")
    # The revision that kubectl applied, and that stands, says nothing of this sync.
    await_true(lambda: newest(classic, "network 100 % (classic by Argo CD)"), "Argo CD again")


def test_who_only_removes_a_field_is_not_mistaken_for_who_wrote_last(classic: Cluster) -> None:
    before = history(classic)
    patch = '[{"op": "remove", "path": "/spec/network/roundTrip/0"}]'
    classic.kubectl("patch", *POLICY, "--type=json", f"--patch={patch}", "--field-manager=remover")
    await_true(lambda: judged_policy(classic), "the edit judged")
    await_true(lambda: history(classic) != before, "its line of history")
    (line,) = [line for line in history(classic) if line not in before]
    assert " by " not in line
    classic.kubectl("apply", *ARGO, "--force-conflicts", f"--filename={CLASSIC}")
    await_true(lambda: judged_policy(classic), "the sample again")


def judged_policy(cluster: Cluster) -> bool:
    found = cluster.get(*POLICY)
    return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])


def events(cluster: Cluster, reason: str) -> set[tuple[str, str]]:
    found = cluster.get("events", "--namespace=inference", f"--field-selector=reason={reason}")["items"]
    return {(event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in found}


def test_break_glass_holds_and_ends_and_is_told(classic: Cluster, manifests: list[tuple[str, ...]]) -> None:
    """The API page, Break-glass: annotations of a manager of their own, in status, history and Events, and no diff."""
    both = {("InferenceEngine", "c"), ("RoutingPolicy", "classic")}
    headrace(classic, "drain", "c", "-n", "inference", "--until", "1h", "--why", "new driver")
    await_true(lambda: newest(classic, "(c drained)"), "the drain in history")
    available = ("ieng", "c", "--namespace=inference", "--output=jsonpath={.status.conditions[?(@.type=='Available')]}")
    await_true(lambda: "new driver" in classic.kubectl("get", *available).stdout, "the drain in the engine's status")
    await_true(lambda: both <= events(classic, "EngineDrained"), "Events of the drain")
    told = headrace(
        classic, "freeze", "classic", "-n", "inference", "--until", "10m", "--why", "load test", "-o", "json"
    )
    assert [glass["state"] for glass in json.loads(told)["standing"]] == ["InForce", "InForce"]
    await_true(lambda: newest(classic, "frozen until"), "the freeze in history")
    ready = ("--output=jsonpath={.status.conditions[?(@.type=='Ready')]}",)
    assert "load test" in classic.kubectl("get", *POLICY, *ready).stdout
    await_true(lambda: ("RoutingPolicy", "classic") in events(classic, "PolicyFrozen"), "an Event of the freeze")
    for which in manifests[:1]:
        assert diff(classic, *which) + diff(classic, *ARGO, *which) == ""
    classic.kubectl("apply", *ARGO, "--force-conflicts", *manifests[0])
    annotations = classic.get(*POLICY)["metadata"]["annotations"]
    assert annotations["headrace.dev/why"] == "load test"
    headrace(classic, "resume", "c", "-n", "inference")
    await_true(lambda: both <= events(classic, "EngineResumed"), "Events of the drain's end")
    headrace(classic, "resume", "rpol/classic", "-n", "inference")
    await_true(lambda: ("RoutingPolicy", "classic") in events(classic, "PolicyResumed"), "an Event of the freeze's end")
    await_true(
        lambda: any("weights follow the world again" in line for line in history(classic)), "its line of history"
    )
    assert "nothing to resume" in headrace(classic, "resume", "classic", "-n", "inference")


def test_what_is_absent_or_forbidden_is_told_in_words(classic: Cluster) -> None:
    words = ("--until", "1h", "--why", "x")
    told = headrace(classic, "freeze", "clasic", "-n", "inference", *words, code=2)
    assert "there is no RoutingPolicy inference/clasic; there are classic" in told
    account = classic.kubectl("create", "serviceaccount", "nobody", "--namespace=inference", "--output=name")
    assert account.returncode == 0
    token = classic.kubectl("create", "token", "nobody", "--namespace=inference").stdout.strip()
    kubeconfig = yaml.safe_load(classic.kubectl("config", "view", "--raw").stdout)
    kubeconfig["users"] = [{"name": user["name"], "user": {"token": token}} for user in kubeconfig["users"]]
    theirs = classic.kubeconfig.parent / "nobody"
    theirs.write_text(json.dumps(kubeconfig))
    try:
        named = ("-n", "inference", "--kubeconfig", str(theirs))
        told = headrace(classic, "freeze", "classic", *named, *words, code=3)
        assert "kubectl auth can-i get routingpolicies.headrace.dev -n inference" in told
        told = headrace(classic, "discover", *named, code=3)
        assert "kubectl auth can-i list deployments.apps -n inference" in told
    finally:
        theirs.unlink()


VLLM: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm-70b", "namespace": "found"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "vllm"}},
        "template": {
            "metadata": {"labels": {"app": "vllm"}},
            "spec": {
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:v0.11.0",
                        "args": ["--model=meta-llama/Llama-3.1-70B", "--tensor-parallel-size=4"],
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "resources": {"limits": {"nvidia.com/gpu": "4"}},
                    }
                ],
            },
        },
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "vllm-70b", "namespace": "found"},
    "spec": {"selector": {"app": "vllm"}, "ports": [{"port": 80, "targetPort": "http"}]},
}


def test_discover_drafts_what_the_api_server_takes_once_it_is_filled(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "found")
    for raw in (VLLM, SERVICE):
        cluster.kubectl("apply", "--filename=-", stdin=json.dumps(raw))
    draft = headrace(cluster, "discover", "-n", "found")
    document = yaml.safe_load(draft[draft.index("---") :])
    assert document["spec"]["endpoints"] == {"service": {"name": "vllm-70b", "port": 80}}
    assert document["spec"]["hardware"] == {"accelerator": "NVIDIA-H100-80GB-HBM3", "count": 4}
    refused = cluster.kubectl("apply", "--dry-run=server", "--filename=-", stdin=draft, check=False)
    assert refused.returncode == 1
    assert "spec.capacity.perReplica.requestsPerSecond" in refused.stderr
    document["spec"]["capacity"]["perReplica"]["requestsPerSecond"] = 12
    cluster.kubectl("apply", "--dry-run=server", "--filename=-", stdin=json.dumps(document))
    assert cluster.get("ieng", "--namespace=found")["items"] == []
